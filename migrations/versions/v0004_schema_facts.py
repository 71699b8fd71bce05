"""Keep the digest of the schema in the database."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None
schema_digest = "39567fdf3e7cc23654fc0ad70451c916fdc4bc5273920d8906c3a9f2f67a2497"


def upgrade() -> None:
    op.create_table(
        "schema_facts",
        sa.Column("revision", sa.String(32), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("oldest_program", sa.String(32), nullable=False),
        sa.PrimaryKeyConstraint("revision", name="pk_schema_facts"),
    )
