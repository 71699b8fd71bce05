"""Visibility, states, terms, aliases and cards"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

MOMENT = sa.DateTime(timezone=True)
# SQLite counts a primary key up by itself only when its type is INTEGER.
BIG_KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    make_grants()
    make_terms()
    make_aliases()
    op.add_column(
        "models",
        sa.Column(
            "visibility",
            sa.String(length=16),
            server_default=sa.text("'consortium'"),
            nullable=False,
        ),
    )
    op.add_column(
        "models",
        sa.Column(
            "rights", sa.JSON(), server_default=sa.text('\'["download", "merge"]\''), nullable=False
        ),
    )
    op.add_column("models", sa.Column("deleted_at", MOMENT, nullable=True))
    op.add_column(
        "model_versions", sa.Column("card", sa.Text(), server_default=sa.text("''"), nullable=False)
    )
    op.add_column(
        "model_versions",
        sa.Column(
            "state", sa.String(length=16), server_default=sa.text("'available'"), nullable=False
        ),
    )
    op.add_column(
        "model_versions",
        sa.Column("state_reason", sa.Text(), server_default=sa.text("''"), nullable=False),
    )
    op.add_column("model_versions", sa.Column("state_changed_at", MOMENT, nullable=True))
    op.add_column(
        "model_versions",
        sa.Column(
            "state_changed_by", sa.String(length=129), server_default=sa.text("''"), nullable=False
        ),
    )
    op.add_column(
        "uploads", sa.Column("card", sa.Text(), server_default=sa.text("''"), nullable=False)
    )
    op.add_column(
        "uploads", sa.Column("terms", sa.JSON(), server_default=sa.text("'[]'"), nullable=False)
    )
    op.add_column("uploads", sa.Column("visibility", sa.String(length=16), nullable=True))
    op.add_column("uploads", sa.Column("rights", sa.JSON(none_as_null=True), nullable=True))
    op.add_column(
        "uploads", sa.Column("as_draft", sa.Boolean(), server_default=sa.false(), nullable=False)
    )
    op.add_column("uploads", sa.Column("statement", sa.JSON(none_as_null=True), nullable=True))
    op.create_index(op.f("ix_model_versions_state_id"), "model_versions", ["state", "id"])


def make_grants() -> None:
    op.create_table(
        "grants",
        sa.Column("model_id", sa.Integer(), nullable=False),
        sa.Column("site_id", sa.Integer(), nullable=False),
        sa.Column("rights", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["model_id"], ["models.id"], name=op.f("fk_grants_model_id_models")
        ),
        sa.ForeignKeyConstraint(["site_id"], ["sites.id"], name=op.f("fk_grants_site_id_sites")),
        sa.PrimaryKeyConstraint("model_id", "site_id", name=op.f("pk_grants")),
    )
    op.create_index(op.f("ix_grants_site_id_model_id"), "grants", ["site_id", "model_id"])


def make_terms() -> None:
    op.create_table(
        "terms",
        sa.Column("version_id", BIG_KEY, nullable=False),
        sa.Column("code", sa.String(length=32), nullable=False),
        sa.Column("detail", sa.String(length=256), nullable=False),
        sa.Column("inherited", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.ForeignKeyConstraint(
            ["version_id"], ["model_versions.id"], name=op.f("fk_terms_version_id_model_versions")
        ),
        sa.PrimaryKeyConstraint("version_id", "code", "detail", name=op.f("pk_terms")),
    )
    op.create_index(op.f("ix_terms_code_version_id"), "terms", ["code", "version_id"])


def make_aliases() -> None:
    op.create_table(
        "aliases",
        sa.Column("model_id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("version_id", BIG_KEY, nullable=False),
        sa.Column("changed_at", MOMENT, nullable=False),
        sa.ForeignKeyConstraint(
            ["model_id"], ["models.id"], name=op.f("fk_aliases_model_id_models")
        ),
        sa.ForeignKeyConstraint(
            ["version_id"], ["model_versions.id"], name=op.f("fk_aliases_version_id_model_versions")
        ),
        sa.PrimaryKeyConstraint("model_id", "name", name=op.f("pk_aliases")),
    )
    op.create_index(op.f("ix_aliases_version_id"), "aliases", ["version_id"])


def downgrade() -> None:
    op.drop_index("ix_model_versions_state_id", table_name="model_versions")
    op.drop_column("models", "deleted_at")
    op.drop_column("models", "rights")
    op.drop_column("models", "visibility")
    op.drop_column("model_versions", "state_changed_by")
    op.drop_column("model_versions", "state_changed_at")
    op.drop_column("model_versions", "state_reason")
    op.drop_column("model_versions", "state")
    op.drop_column("model_versions", "card")
    op.drop_column("uploads", "statement")
    op.drop_column("uploads", "as_draft")
    op.drop_column("uploads", "rights")
    op.drop_column("uploads", "visibility")
    op.drop_column("uploads", "terms")
    op.drop_column("uploads", "card")
    op.drop_table("aliases")
    op.drop_table("terms")
    op.drop_table("grants")
