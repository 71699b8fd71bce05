"""The first tables"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

MOMENT = sa.DateTime(timezone=True)
# SQLite counts a primary key up by itself only when its type is INTEGER.
BIG_KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def make_audit_guard() -> None:
    """Let the database itself refuse to change what the audit says."""
    if op.get_bind().dialect.name == "sqlite":
        for act in ("UPDATE", "DELETE"):
            op.execute(
                f"CREATE TRIGGER audit_refuses_{act.lower()} BEFORE {act} ON audit "
                "BEGIN SELECT RAISE(ABORT, 'the audit is only appended to'); END"
            )
        return
    op.execute(
        "CREATE FUNCTION refuse_to_change_the_audit() RETURNS trigger LANGUAGE plpgsql AS $$ "
        "BEGIN RAISE EXCEPTION 'the audit is only appended to' "
        "USING ERRCODE = 'integrity_constraint_violation'; END $$"
    )
    for act in ("UPDATE", "DELETE", "TRUNCATE"):
        op.execute(
            f"CREATE TRIGGER audit_refuses_{act.lower()} BEFORE {act} ON audit "
            "FOR EACH STATEMENT EXECUTE FUNCTION refuse_to_change_the_audit()"
        )


def drop_audit_guard() -> None:
    if op.get_bind().dialect.name == "sqlite":
        for act in ("UPDATE", "DELETE"):
            op.execute(f"DROP TRIGGER audit_refuses_{act.lower()}")
        return
    for act in ("UPDATE", "DELETE", "TRUNCATE"):
        op.execute(f"DROP TRIGGER audit_refuses_{act.lower()} ON audit")
    op.execute("DROP FUNCTION refuse_to_change_the_audit()")


def upgrade() -> None:
    op.create_table(
        "audit",
        sa.Column("id", BIG_KEY, nullable=False),
        sa.Column("at", MOMENT, nullable=False),
        sa.Column("actor_site", sa.String(length=64), nullable=False),
        sa.Column("actor_token", sa.String(length=64), nullable=False),
        sa.Column("token_id", sa.String(length=32), nullable=False),
        sa.Column("address", sa.String(length=64), nullable=False),
        sa.Column("request_id", sa.String(length=64), nullable=False),
        sa.Column("action", sa.String(length=64), nullable=False),
        sa.Column("subject", sa.String(length=256), nullable=False),
        sa.Column("outcome", sa.String(length=32), nullable=False),
        sa.Column("details", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit")),
    )
    op.create_index("ix_audit_action_at", "audit", ["action", "at"])
    op.create_index("ix_audit_subject", "audit", ["subject"])

    op.create_table(
        "sites",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("display_name", sa.String(length=200), nullable=False),
        sa.Column("contact", sa.String(length=200), nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_sites")),
        sa.UniqueConstraint("name", name=op.f("uq_sites_name")),
    )
    op.create_table(
        "models",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("site_id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.ForeignKeyConstraint(["site_id"], ["sites.id"], name=op.f("fk_models_site_id_sites")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_models")),
        sa.UniqueConstraint("site_id", "name", name=op.f("uq_models_site_id_name")),
    )
    op.create_table(
        "tokens",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("site_id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.Column("secret_hash", sa.String(length=64), nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("expires_at", MOMENT, nullable=True),
        sa.Column("last_used_at", MOMENT, nullable=True),
        sa.Column("revoked_at", MOMENT, nullable=True),
        sa.ForeignKeyConstraint(["site_id"], ["sites.id"], name=op.f("fk_tokens_site_id_sites")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tokens")),
        sa.UniqueConstraint("secret_hash", name=op.f("uq_tokens_secret_hash")),
    )
    op.create_index(
        "uq_tokens_site_id_name_valid",
        "tokens",
        ["site_id", "name"],
        unique=True,
        sqlite_where=sa.text("revoked_at IS NULL"),
        postgresql_where=sa.text("revoked_at IS NULL"),
    )

    op.create_table(
        "model_versions",
        sa.Column("id", BIG_KEY, nullable=False),
        sa.Column("model_id", sa.Integer(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("format", sa.String(length=64), nullable=False),
        sa.Column("file_name", sa.String(length=255), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("fingerprint", sa.JSON(), nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("created_by", sa.String(length=129), nullable=False),
        sa.Column("token_id", sa.String(length=32), nullable=False),
        sa.ForeignKeyConstraint(
            ["model_id"], ["models.id"], name=op.f("fk_model_versions_model_id_models")
        ),
        sa.ForeignKeyConstraint(
            ["token_id"], ["tokens.id"], name=op.f("fk_model_versions_token_id_tokens")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_model_versions")),
        sa.UniqueConstraint("model_id", "digest", name=op.f("uq_model_versions_model_id_digest")),
        sa.UniqueConstraint("model_id", "number", name=op.f("uq_model_versions_model_id_number")),
    )
    op.create_index("ix_model_versions_digest", "model_versions", ["digest"])
    op.create_index("ix_model_versions_kind_id", "model_versions", ["kind", "id"])

    op.create_table(
        "labels",
        sa.Column("version_id", BIG_KEY, nullable=False),
        sa.Column("key", sa.String(length=64), nullable=False),
        sa.Column("value", sa.String(length=256), nullable=False),
        sa.ForeignKeyConstraint(
            ["version_id"], ["model_versions.id"], name=op.f("fk_labels_version_id_model_versions")
        ),
        sa.PrimaryKeyConstraint("version_id", "key", name=op.f("pk_labels")),
    )
    op.create_index("ix_labels_key_value_version_id", "labels", ["key", "value", "version_id"])

    op.create_table(
        "merge_keys",
        sa.Column("version_id", BIG_KEY, nullable=False),
        sa.Column("method", sa.String(length=64), nullable=False),
        sa.Column("key", sa.String(length=256), nullable=False),
        sa.ForeignKeyConstraint(
            ["version_id"],
            ["model_versions.id"],
            name=op.f("fk_merge_keys_version_id_model_versions"),
        ),
        sa.PrimaryKeyConstraint("version_id", "method", name=op.f("pk_merge_keys")),
    )
    op.create_index(
        "ix_merge_keys_method_key_version_id", "merge_keys", ["method", "key", "version_id"]
    )

    op.create_table(
        "metrics",
        sa.Column("version_id", BIG_KEY, nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("value", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["version_id"], ["model_versions.id"], name=op.f("fk_metrics_version_id_model_versions")
        ),
        sa.PrimaryKeyConstraint("version_id", "name", name=op.f("pk_metrics")),
    )
    op.create_index("ix_metrics_name_value_version_id", "metrics", ["name", "value", "version_id"])

    op.create_table(
        "parents",
        sa.Column("version_id", BIG_KEY, nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("child_digest", sa.String(length=64), nullable=False),
        sa.Column("parent_digest", sa.String(length=64), nullable=False),
        sa.Column("weight", sa.Double(), nullable=False),
        sa.Column("method", sa.String(length=64), nullable=False),
        sa.ForeignKeyConstraint(
            ["version_id"], ["model_versions.id"], name=op.f("fk_parents_version_id_model_versions")
        ),
        sa.PrimaryKeyConstraint("version_id", "position", name=op.f("pk_parents")),
    )
    op.create_index(
        "ix_parents_child_digest_parent_digest", "parents", ["child_digest", "parent_digest"]
    )
    op.create_index(
        "ix_parents_parent_digest_child_digest", "parents", ["parent_digest", "child_digest"]
    )

    op.create_table(
        "recipes",
        sa.Column("version_id", BIG_KEY, nullable=False),
        sa.Column("method", sa.String(length=64), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["version_id"], ["model_versions.id"], name=op.f("fk_recipes_version_id_model_versions")
        ),
        sa.PrimaryKeyConstraint("version_id", name=op.f("pk_recipes")),
    )
    op.create_table(
        "uploads",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("site_id", sa.Integer(), nullable=False),
        sa.Column("token_id", sa.String(length=32), nullable=False),
        sa.Column("model_name", sa.String(length=64), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("part_bytes", sa.BigInteger(), nullable=False),
        sa.Column("file_name", sa.String(length=255), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("labels", sa.JSON(), nullable=False),
        sa.Column("metrics", sa.JSON(), nullable=False),
        sa.Column("recipe", sa.JSON(), nullable=True),
        sa.Column("storage_handle", sa.Text(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("claim_expires_at", MOMENT, nullable=True),
        sa.Column("refusal", sa.JSON(), nullable=True),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("expires_at", MOMENT, nullable=False),
        sa.Column("version_id", BIG_KEY, nullable=True),
        sa.ForeignKeyConstraint(["site_id"], ["sites.id"], name=op.f("fk_uploads_site_id_sites")),
        sa.ForeignKeyConstraint(
            ["token_id"], ["tokens.id"], name=op.f("fk_uploads_token_id_tokens")
        ),
        sa.ForeignKeyConstraint(
            ["version_id"], ["model_versions.id"], name=op.f("fk_uploads_version_id_model_versions")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_uploads")),
    )
    op.create_index(
        "uq_uploads_open",
        "uploads",
        ["site_id", "model_name", "digest"],
        unique=True,
        sqlite_where=sa.text("state IN ('receiving', 'checking')"),
        postgresql_where=sa.text("state IN ('receiving', 'checking')"),
    )
    op.create_index("ix_uploads_state_expires_at", "uploads", ["state", "expires_at"])
    make_audit_guard()


def downgrade() -> None:
    drop_audit_guard()
    op.drop_table("uploads")
    op.drop_table("recipes")
    op.drop_table("parents")
    op.drop_table("metrics")
    op.drop_table("merge_keys")
    op.drop_table("labels")
    op.drop_table("model_versions")
    op.drop_table("tokens")
    op.drop_table("models")
    op.drop_table("sites")
    op.drop_table("audit")
