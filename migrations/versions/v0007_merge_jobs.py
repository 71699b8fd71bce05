"""Merges made by the pool"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

MOMENT = sa.DateTime(timezone=True)
# SQLite counts a primary key up by itself only when its type is INTEGER.
BIG_KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    make_merge_jobs()


def make_merge_jobs() -> None:
    op.create_table(
        "merge_jobs",
        sa.Column("id", BIG_KEY, nullable=False),
        sa.Column("key", sa.String(length=16), nullable=False),
        sa.Column("site_id", sa.Integer(), nullable=False),
        sa.Column("token_id", sa.String(length=32), nullable=False),
        sa.Column("created_by", sa.String(length=129), nullable=False),
        sa.Column("model_name", sa.String(length=64), nullable=False),
        sa.Column("request", sa.JSON(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("progress", sa.Double(), nullable=False),
        sa.Column("activity", sa.Text(), nullable=False),
        sa.Column("cancel_requested", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("claimed_by", sa.String(length=64), nullable=False),
        sa.Column("claim_expires_at", MOMENT, nullable=True),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("started_at", MOMENT, nullable=True),
        sa.Column("ended_at", MOMENT, nullable=True),
        sa.Column("refusal", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("version_id", BIG_KEY, nullable=True),
        sa.ForeignKeyConstraint(
            ["site_id"], ["sites.id"], name=op.f("fk_merge_jobs_site_id_sites")
        ),
        sa.ForeignKeyConstraint(
            ["token_id"], ["tokens.id"], name=op.f("fk_merge_jobs_token_id_tokens")
        ),
        sa.ForeignKeyConstraint(
            ["version_id"],
            ["model_versions.id"],
            name=op.f("fk_merge_jobs_version_id_model_versions"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_merge_jobs")),
        sa.UniqueConstraint("key", name=op.f("uq_merge_jobs_key")),
    )
    op.create_index(op.f("ix_merge_jobs_site_id_id"), "merge_jobs", ["site_id", "id"])
    op.create_index(op.f("ix_merge_jobs_state_id"), "merge_jobs", ["state", "id"])


def downgrade() -> None:
    op.drop_table("merge_jobs")
