"""Users, invitations, and what tokens may"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

MOMENT = sa.DateTime(timezone=True)


def upgrade() -> None:
    make_users()
    make_invitations()
    make_user_tokens()
    op.add_column(
        "audit",
        sa.Column("actor_user", sa.String(length=64), server_default=sa.text("''"), nullable=False),
    )
    op.add_column("sites", sa.Column("quota_bytes", sa.BigInteger(), nullable=True))
    op.add_column("sites", sa.Column("suspended_at", MOMENT, nullable=True))
    op.add_column(
        "tokens", sa.Column("pool_wide", sa.Boolean(), server_default=sa.false(), nullable=False)
    )
    op.add_column("tokens", sa.Column("scopes", sa.JSON(none_as_null=True), nullable=True))
    # Until now an admin's token was the whole pool's.
    op.execute("UPDATE tokens SET pool_wide = true WHERE role = 'admin'")


def make_users() -> None:
    op.create_table(
        "users",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("site_id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("display_name", sa.String(length=200), nullable=False),
        sa.Column("email", sa.String(length=254), nullable=False),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.Column("pool_wide", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("disabled_at", MOMENT, nullable=True),
        sa.ForeignKeyConstraint(["site_id"], ["sites.id"], name=op.f("fk_users_site_id_sites")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_users")),
        sa.UniqueConstraint("site_id", "name", name=op.f("uq_users_site_id_name")),
    )


def make_invitations() -> None:
    op.create_table(
        "invitations",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("secret_hash", sa.String(length=64), nullable=False),
        sa.Column("site_id", sa.Integer(), nullable=False),
        sa.Column("email", sa.String(length=254), nullable=False),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.Column("pool_wide", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("created_by", sa.String(length=129), nullable=False),
        sa.Column("expires_at", MOMENT, nullable=False),
        sa.Column("used_at", MOMENT, nullable=True),
        sa.Column("user_id", sa.Integer(), nullable=True),
        sa.Column("revoked_at", MOMENT, nullable=True),
        sa.ForeignKeyConstraint(
            ["site_id"], ["sites.id"], name=op.f("fk_invitations_site_id_sites")
        ),
        sa.ForeignKeyConstraint(
            ["user_id"], ["users.id"], name=op.f("fk_invitations_user_id_users")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_invitations")),
        sa.UniqueConstraint("secret_hash", name=op.f("uq_invitations_secret_hash")),
    )


def make_user_tokens() -> None:
    op.create_table(
        "user_tokens",
        sa.Column("token_id", sa.String(length=32), nullable=False),
        sa.Column("user_id", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["token_id"], ["tokens.id"], name=op.f("fk_user_tokens_token_id_tokens")
        ),
        sa.ForeignKeyConstraint(
            ["user_id"], ["users.id"], name=op.f("fk_user_tokens_user_id_users")
        ),
        sa.PrimaryKeyConstraint("token_id", name=op.f("pk_user_tokens")),
    )
    op.create_index(op.f("ix_user_tokens_user_id"), "user_tokens", ["user_id"])


def downgrade() -> None:
    op.drop_column("audit", "actor_user")
    op.drop_column("sites", "suspended_at")
    op.drop_column("sites", "quota_bytes")
    op.drop_column("tokens", "scopes")
    op.drop_column("tokens", "pool_wide")
    op.drop_table("user_tokens")
    op.drop_table("invitations")
    op.drop_table("users")
