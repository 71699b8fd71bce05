"""Keys of sites and signed statements"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

MOMENT = sa.DateTime(timezone=True)
# SQLite counts a primary key up by itself only when its type is INTEGER.
BIG_KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    make_site_keys()
    make_statements()


def make_site_keys() -> None:
    op.create_table(
        "site_keys",
        sa.Column("site_id", sa.Integer(), nullable=False),
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("public_key", sa.Text(), nullable=False),
        sa.Column("origin", sa.String(length=320), server_default=sa.text("''"), nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("created_by", sa.String(length=129), nullable=False),
        sa.Column("revoked_at", MOMENT, nullable=True),
        sa.Column("revocation", sa.String(length=16), server_default=sa.text("''"), nullable=False),
        sa.ForeignKeyConstraint(["site_id"], ["sites.id"], name=op.f("fk_site_keys_site_id_sites")),
        sa.PrimaryKeyConstraint("site_id", "id", name=op.f("pk_site_keys")),
    )


def make_statements() -> None:
    op.create_table(
        "statements",
        sa.Column("version_id", BIG_KEY, nullable=False),
        sa.Column("site_id", sa.Integer(), nullable=False),
        sa.Column("key_id", sa.String(length=64), nullable=False),
        sa.Column("origin", sa.String(length=320), server_default=sa.text("''"), nullable=False),
        sa.Column("envelope", sa.JSON(), nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.ForeignKeyConstraint(
            ["site_id", "key_id"],
            ["site_keys.site_id", "site_keys.id"],
            name=op.f("fk_statements_site_id_site_keys"),
        ),
        sa.ForeignKeyConstraint(
            ["version_id"],
            ["model_versions.id"],
            name=op.f("fk_statements_version_id_model_versions"),
        ),
        sa.PrimaryKeyConstraint("version_id", name=op.f("pk_statements")),
    )
    op.create_index(op.f("ix_statements_site_id_key_id"), "statements", ["site_id", "key_id"])


def downgrade() -> None:
    op.drop_table("statements")
    op.drop_table("site_keys")
