"""Log-in by OpenID providers: accounts there, invitations for them, computers that wait."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None
schema_digest = "9fbf47b24e91caacaf55a7ffe2c65f537fc7cbc336ec4d6f5aca257555cc2a25"


def upgrade() -> None:
    op.add_column("users", sa.Column("valid_until", sa.DateTime(timezone=True)))
    for name, length in (("sign_on", 32), ("subject", 255)):
        empty = sa.Column(name, sa.String(length), nullable=False, server_default=sa.text("''"))
        op.add_column("invitations", empty)
    op.create_table(
        "sign_on_identities",
        sa.Column("issuer", sa.String(255), nullable=False),
        sa.Column("subject", sa.String(255), nullable=False),
        sa.Column("user_id", sa.Integer(), nullable=False),
        sa.Column("by_rule", sa.Boolean(), nullable=False),
        sa.Column("refresh_token", sa.Text(), nullable=False),
        sa.Column("renew_at", sa.DateTime(timezone=True)),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("issuer", "subject", name="pk_sign_on_identities"),
        sa.ForeignKeyConstraint(
            ["user_id"], ["users.id"], name="fk_sign_on_identities_user_id_users"
        ),
        sa.UniqueConstraint("user_id", name="uq_sign_on_identities_user_id"),
    )
    op.create_table(
        "device_logins",
        sa.Column("secret_hash", sa.String(64), nullable=False),
        sa.Column("user_code", sa.String(16), nullable=False),
        sa.Column("computer", sa.String(64), nullable=False),
        sa.Column("address", sa.String(64), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("token_id", sa.String(32)),
        sa.Column("is_refused", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("secret_hash", name="pk_device_logins"),
        sa.UniqueConstraint("user_code", name="uq_device_logins_user_code"),
        sa.ForeignKeyConstraint(
            ["token_id"], ["tokens.id"], name="fk_device_logins_token_id_tokens"
        ),
    )
