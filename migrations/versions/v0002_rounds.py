"""Rounds of refinement"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

MOMENT = sa.DateTime(timezone=True)
# SQLite counts a primary key up by itself only when its type is INTEGER.
BIG_KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
IS_OPEN = sa.text("state IN ('receiving', 'checking')")


def upgrade() -> None:
    make_rounds()
    make_participants_and_contributions()
    op.drop_index("uq_uploads_open", table_name="uploads")
    with op.batch_alter_table("uploads") as uploads:
        uploads.add_column(
            sa.Column(
                "purpose",
                sa.String(length=16),
                nullable=False,
                server_default=sa.text("'version'"),
            )
        )
        uploads.add_column(sa.Column("round_id", BIG_KEY, nullable=True))
        uploads.create_foreign_key(
            op.f("fk_uploads_round_id_rounds"), "rounds", ["round_id"], ["id"]
        )
    make_index_of_open_uploads(["site_id", "purpose", "model_name", "digest"])


def make_rounds() -> None:
    op.create_table(
        "rounds",
        sa.Column("id", BIG_KEY, nullable=False),
        sa.Column("key", sa.String(length=16), nullable=False),
        sa.Column("site_id", sa.Integer(), nullable=False),
        sa.Column("token_id", sa.String(length=32), nullable=False),
        sa.Column("created_by", sa.String(length=129), nullable=False),
        sa.Column("base_version_id", BIG_KEY, nullable=False),
        sa.Column("method", sa.String(length=64), nullable=False),
        sa.Column("method_version", sa.Integer(), nullable=False),
        sa.Column("mode", sa.String(length=32), nullable=False),
        sa.Column("options", sa.JSON(), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("rounds_total", sa.Integer(), nullable=False),
        sa.Column("predecessor_id", BIG_KEY, nullable=True),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("deadline", MOMENT, nullable=False),
        sa.Column("duration_s", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("ended_at", MOMENT, nullable=True),
        sa.Column("ended_by", sa.String(length=129), nullable=True),
        sa.Column("result_version_id", BIG_KEY, nullable=True),
        sa.ForeignKeyConstraint(
            ["base_version_id"],
            ["model_versions.id"],
            name=op.f("fk_rounds_base_version_id_model_versions"),
        ),
        sa.ForeignKeyConstraint(
            ["predecessor_id"], ["rounds.id"], name=op.f("fk_rounds_predecessor_id_rounds")
        ),
        sa.ForeignKeyConstraint(
            ["result_version_id"],
            ["model_versions.id"],
            name=op.f("fk_rounds_result_version_id_model_versions"),
        ),
        sa.ForeignKeyConstraint(["site_id"], ["sites.id"], name=op.f("fk_rounds_site_id_sites")),
        sa.ForeignKeyConstraint(
            ["token_id"], ["tokens.id"], name=op.f("fk_rounds_token_id_tokens")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_rounds")),
        sa.UniqueConstraint("key", name=op.f("uq_rounds_key")),
        sa.UniqueConstraint("predecessor_id", name=op.f("uq_rounds_predecessor_id")),
    )
    op.create_index("ix_rounds_state_id", "rounds", ["state", "id"])


def make_participants_and_contributions() -> None:
    op.create_table(
        "round_participants",
        sa.Column("round_id", BIG_KEY, nullable=False),
        sa.Column("site_id", sa.Integer(), nullable=False),
        sa.Column("late_at", MOMENT, nullable=True),
        sa.ForeignKeyConstraint(
            ["round_id"], ["rounds.id"], name=op.f("fk_round_participants_round_id_rounds")
        ),
        sa.ForeignKeyConstraint(
            ["site_id"], ["sites.id"], name=op.f("fk_round_participants_site_id_sites")
        ),
        sa.PrimaryKeyConstraint("round_id", "site_id", name=op.f("pk_round_participants")),
    )
    op.create_index(
        "ix_round_participants_site_id_round_id", "round_participants", ["site_id", "round_id"]
    )
    op.create_table(
        "round_contributions",
        sa.Column("round_id", BIG_KEY, nullable=False),
        sa.Column("site_id", sa.Integer(), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("file_name", sa.String(length=255), nullable=False),
        sa.Column("summary", sa.JSON(), nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("created_by", sa.String(length=129), nullable=False),
        sa.Column("token_id", sa.String(length=32), nullable=False),
        sa.ForeignKeyConstraint(
            ["round_id", "site_id"],
            ["round_participants.round_id", "round_participants.site_id"],
            name=op.f("fk_round_contributions_round_id_round_participants"),
        ),
        sa.ForeignKeyConstraint(
            ["round_id"], ["rounds.id"], name=op.f("fk_round_contributions_round_id_rounds")
        ),
        sa.ForeignKeyConstraint(
            ["site_id"], ["sites.id"], name=op.f("fk_round_contributions_site_id_sites")
        ),
        sa.ForeignKeyConstraint(
            ["token_id"], ["tokens.id"], name=op.f("fk_round_contributions_token_id_tokens")
        ),
        sa.PrimaryKeyConstraint("round_id", "site_id", name=op.f("pk_round_contributions")),
    )
    op.create_index("ix_round_contributions_digest", "round_contributions", ["digest"])


def make_index_of_open_uploads(columns: list[str]) -> None:
    op.create_index(
        "uq_uploads_open",
        "uploads",
        columns,
        unique=True,
        sqlite_where=IS_OPEN,
        postgresql_where=IS_OPEN,
    )


def downgrade() -> None:
    # What is under way to a round has no place in the older schema.
    op.execute("DELETE FROM uploads WHERE purpose <> 'version'")
    op.drop_index("uq_uploads_open", table_name="uploads")
    with op.batch_alter_table("uploads") as uploads:
        uploads.drop_constraint(op.f("fk_uploads_round_id_rounds"), type_="foreignkey")
        uploads.drop_column("round_id")
        uploads.drop_column("purpose")
    make_index_of_open_uploads(["site_id", "model_name", "digest"])
    op.drop_table("round_contributions")
    op.drop_table("round_participants")
    op.drop_table("rounds")
