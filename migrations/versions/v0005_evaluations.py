"""Evaluations"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

MOMENT = sa.DateTime(timezone=True)
# SQLite counts a primary key up by itself only when its type is INTEGER.
BIG_KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    make_evaluations()
    make_evaluation_scores()


def make_evaluations() -> None:
    op.create_table(
        "evaluations",
        sa.Column("id", BIG_KEY, nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("site_id", sa.Integer(), nullable=False),
        sa.Column("dataset", sa.String(length=128), nullable=False),
        sa.Column("dataset_digest", sa.String(length=64), nullable=False),
        sa.Column("split", sa.String(length=64), nullable=False),
        sa.Column("protocol", sa.String(length=128), nullable=False),
        sa.Column("images", sa.Integer(), nullable=True),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("details", sa.JSON(), nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("created_by", sa.String(length=129), nullable=False),
        sa.Column("token_id", sa.String(length=32), nullable=False),
        sa.ForeignKeyConstraint(
            ["site_id"], ["sites.id"], name=op.f("fk_evaluations_site_id_sites")
        ),
        sa.ForeignKeyConstraint(
            ["token_id"], ["tokens.id"], name=op.f("fk_evaluations_token_id_tokens")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_evaluations")),
    )
    op.create_index(op.f("ix_evaluations_digest_id"), "evaluations", ["digest", "id"])
    op.create_index(op.f("ix_evaluations_site_id_id"), "evaluations", ["site_id", "id"])


def make_evaluation_scores() -> None:
    op.create_table(
        "evaluation_scores",
        sa.Column("evaluation_id", BIG_KEY, nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("value", sa.Double(), nullable=False),
        sa.Column("low", sa.Double(), nullable=True),
        sa.Column("high", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(
            ["evaluation_id"],
            ["evaluations.id"],
            name=op.f("fk_evaluation_scores_evaluation_id_evaluations"),
        ),
        sa.PrimaryKeyConstraint("evaluation_id", "name", name=op.f("pk_evaluation_scores")),
    )
    op.create_index(
        op.f("ix_evaluation_scores_name_value_evaluation_id"),
        "evaluation_scores",
        ["name", "value", "evaluation_id"],
    )


def downgrade() -> None:
    op.drop_table("evaluation_scores")
    op.drop_table("evaluations")
