"""Withdrawals, events and webhooks"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

MOMENT = sa.DateTime(timezone=True)
# SQLite counts a primary key up by itself only when its type is INTEGER.
BIG_KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    make_withdrawals()
    make_withdrawal_flags()
    make_successors()
    make_downloads()
    make_events()
    make_webhooks()
    make_webhook_deliveries()


def make_withdrawals() -> None:
    op.create_table(
        "withdrawals",
        sa.Column("id", BIG_KEY, nullable=False),
        sa.Column("version_id", BIG_KEY, nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("reason", sa.String(length=32), nullable=False),
        sa.Column("explanation", sa.Text(), nullable=False),
        sa.Column("effect", sa.String(length=16), nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("created_by", sa.String(length=129), nullable=False),
        sa.Column("token_id", sa.String(length=32), nullable=False),
        sa.ForeignKeyConstraint(
            ["token_id"], ["tokens.id"], name=op.f("fk_withdrawals_token_id_tokens")
        ),
        sa.ForeignKeyConstraint(
            ["version_id"],
            ["model_versions.id"],
            name=op.f("fk_withdrawals_version_id_model_versions"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_withdrawals")),
        sa.UniqueConstraint("version_id", name=op.f("uq_withdrawals_version_id")),
    )
    op.create_index(op.f("ix_withdrawals_digest"), "withdrawals", ["digest"])


def make_withdrawal_flags() -> None:
    op.create_table(
        "withdrawal_flags",
        sa.Column("version_id", BIG_KEY, nullable=False),
        sa.Column("withdrawal_id", BIG_KEY, nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.ForeignKeyConstraint(
            ["version_id"],
            ["model_versions.id"],
            name=op.f("fk_withdrawal_flags_version_id_model_versions"),
        ),
        sa.ForeignKeyConstraint(
            ["withdrawal_id"],
            ["withdrawals.id"],
            name=op.f("fk_withdrawal_flags_withdrawal_id_withdrawals"),
        ),
        sa.PrimaryKeyConstraint("version_id", "withdrawal_id", name=op.f("pk_withdrawal_flags")),
    )
    op.create_index(
        op.f("ix_withdrawal_flags_withdrawal_id_version_id"),
        "withdrawal_flags",
        ["withdrawal_id", "version_id"],
    )


def make_successors() -> None:
    op.create_table(
        "successors",
        sa.Column("version_id", BIG_KEY, nullable=False),
        sa.Column("successor_id", BIG_KEY, nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("created_by", sa.String(length=129), nullable=False),
        sa.ForeignKeyConstraint(
            ["successor_id"],
            ["model_versions.id"],
            name=op.f("fk_successors_successor_id_model_versions"),
        ),
        sa.ForeignKeyConstraint(
            ["version_id"],
            ["model_versions.id"],
            name=op.f("fk_successors_version_id_model_versions"),
        ),
        sa.PrimaryKeyConstraint("version_id", "successor_id", name=op.f("pk_successors")),
    )
    op.create_index(op.f("ix_successors_successor_id"), "successors", ["successor_id"])


def make_downloads() -> None:
    op.create_table(
        "downloads",
        sa.Column("version_id", BIG_KEY, nullable=False),
        sa.Column("site_id", sa.Integer(), nullable=False),
        sa.Column("first_at", MOMENT, nullable=False),
        sa.Column("last_at", MOMENT, nullable=False),
        sa.ForeignKeyConstraint(
            ["version_id"],
            ["model_versions.id"],
            name=op.f("fk_downloads_version_id_model_versions"),
        ),
        sa.ForeignKeyConstraint(["site_id"], ["sites.id"], name=op.f("fk_downloads_site_id_sites")),
        sa.PrimaryKeyConstraint("version_id", "site_id", name=op.f("pk_downloads")),
    )
    op.create_index(op.f("ix_downloads_site_id"), "downloads", ["site_id"])


def make_events() -> None:
    op.create_table(
        "events",
        sa.Column("id", BIG_KEY, nullable=False),
        sa.Column("at", MOMENT, nullable=False),
        sa.Column("site_id", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(length=64), nullable=False),
        sa.Column("subject", sa.String(length=256), nullable=False),
        sa.Column("details", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["site_id"], ["sites.id"], name=op.f("fk_events_site_id_sites")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_events")),
    )
    op.create_index(op.f("ix_events_site_id_id"), "events", ["site_id", "id"])


def make_webhooks() -> None:
    op.create_table(
        "webhooks",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("site_id", sa.Integer(), nullable=False),
        sa.Column("url", sa.String(length=2000), nullable=False),
        sa.Column("secret", sa.String(length=128), nullable=False),
        sa.Column("kinds", sa.JSON(), nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("created_by", sa.String(length=129), nullable=False),
        sa.Column("disabled_at", MOMENT, nullable=True),
        sa.ForeignKeyConstraint(["site_id"], ["sites.id"], name=op.f("fk_webhooks_site_id_sites")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_webhooks")),
    )
    op.create_index(op.f("ix_webhooks_site_id"), "webhooks", ["site_id"])


def make_webhook_deliveries() -> None:
    op.create_table(
        "webhook_deliveries",
        sa.Column("webhook_id", sa.String(length=32), nullable=False),
        sa.Column("event_id", BIG_KEY, nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("next_attempt_at", MOMENT, nullable=True),
        sa.Column("delivered_at", MOMENT, nullable=True),
        sa.Column("given_up_at", MOMENT, nullable=True),
        sa.Column("last_error", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["event_id"], ["events.id"], name=op.f("fk_webhook_deliveries_event_id_events")
        ),
        sa.ForeignKeyConstraint(
            ["webhook_id"], ["webhooks.id"], name=op.f("fk_webhook_deliveries_webhook_id_webhooks")
        ),
        sa.PrimaryKeyConstraint("webhook_id", "event_id", name=op.f("pk_webhook_deliveries")),
    )
    op.create_index(
        op.f("ix_webhook_deliveries_next_attempt_at"), "webhook_deliveries", ["next_attempt_at"]
    )


def downgrade() -> None:
    op.drop_table("webhook_deliveries")
    op.drop_table("webhooks")
    op.drop_table("events")
    op.drop_table("downloads")
    op.drop_table("successors")
    op.drop_table("withdrawal_flags")
    op.drop_table("withdrawals")
