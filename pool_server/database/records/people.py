"""Sites, their people, tokens and signing keys."""

from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.orm import Mapped, mapped_column, relationship

from pool_server.database.records import base


class SiteRecord(base.Record):
    """A lab. Its name is the first word of its models' addresses and never changes."""

    __tablename__ = "sites"

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[base.NameText] = mapped_column(unique=True)
    display_name: Mapped[str] = mapped_column(sa.String(200), default="")
    contact: Mapped[str] = mapped_column(sa.String(200), default="")
    created_at: Mapped[datetime] = mapped_column(default=base.now_utc)
    # Bytes that all files of the site may take together; None: no limit.
    quota_bytes: Mapped[int | None] = mapped_column(sa.BigInteger)
    # A suspended site is refused with all its tokens; its models stay.
    suspended_at: Mapped[datetime | None]


class UserRecord(base.Record):
    """A person at a site; the person's tokens never may more than the person.

    `role` is ``viewer``, ``contributor``, ``curator`` or ``admin`` and holds for the person's own
    site; with `pool_wide` it holds for every site.
    """

    __tablename__ = "users"
    __table_args__ = (sa.UniqueConstraint("site_id", "name"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    site_id: Mapped[int] = mapped_column(sa.ForeignKey("sites.id"))
    name: Mapped[base.NameText]
    display_name: Mapped[str] = mapped_column(sa.String(200), default="")
    email: Mapped[str] = mapped_column(sa.String(254), default="")
    role: Mapped[str] = mapped_column(sa.String(16))
    pool_wide: Mapped[bool] = mapped_column(default=False, server_default=sa.false())
    created_at: Mapped[datetime] = mapped_column(default=base.now_utc)
    disabled_at: Mapped[datetime | None]
    # Until when the provider's last word holds; None for people who do not sign on.
    valid_until: Mapped[datetime | None]

    site: Mapped[SiteRecord] = relationship(lazy="raise")


class InvitationRecord(base.Record):
    """A secret that makes one user, once; only its SHA-256 is kept."""

    __tablename__ = "invitations"

    id: Mapped[str] = mapped_column(sa.String(32), primary_key=True)
    secret_hash: Mapped[str] = mapped_column(sa.String(64), unique=True)
    site_id: Mapped[int] = mapped_column(sa.ForeignKey("sites.id"))
    email: Mapped[str] = mapped_column(sa.String(254), default="")
    # With a provider's name it admits the person of this subject or verified address there, and
    # the secret admits nobody.
    sign_on: Mapped[str] = mapped_column(sa.String(32), default="", server_default=sa.text("''"))
    subject: Mapped[str] = mapped_column(sa.String(255), default="", server_default=sa.text("''"))
    role: Mapped[str] = mapped_column(sa.String(16))
    pool_wide: Mapped[bool] = mapped_column(default=False, server_default=sa.false())
    created_at: Mapped[datetime] = mapped_column(default=base.now_utc)
    created_by: Mapped[str] = mapped_column(sa.String(129))
    made_by: Mapped[str | None] = mapped_column(sa.String(129))
    expires_at: Mapped[datetime]
    used_at: Mapped[datetime | None]
    user_id: Mapped[int | None] = mapped_column(sa.ForeignKey("users.id"))
    revoked_at: Mapped[datetime | None]

    site: Mapped[SiteRecord] = relationship(lazy="raise")
    user: Mapped[UserRecord | None] = relationship(lazy="raise")


class TokenRecord(base.Record):
    """A named token of a site; of the secret only the SHA-256 is kept.

    `kind` is ``program`` or ``sign-on``. One of a sign-on only carries its user's sessions, as
    nobody knows its secret. One of the kind ``feed``, of an older pool, is refused everywhere.
    `role` holds for the token's own site, with `pool_wide` for every site. `scopes` narrow the
    role's permissions; None: all of them. The secret has 256 random bits, so that a
    plain hash is as good as a slow one.
    """

    __tablename__ = "tokens"
    __table_args__ = (
        # A revoked token frees its name: the lab's "laptop" may get a new one.
        sa.Index(
            "uq_tokens_site_id_name_valid",
            "site_id",
            "name",
            unique=True,
            sqlite_where=sa.text("revoked_at IS NULL"),
            postgresql_where=sa.text("revoked_at IS NULL"),
        ),
    )

    id: Mapped[str] = mapped_column(sa.String(32), primary_key=True)
    site_id: Mapped[int] = mapped_column(sa.ForeignKey("sites.id"))
    name: Mapped[base.NameText]
    kind: Mapped[str] = mapped_column(sa.String(16), default="program", server_default="program")
    role: Mapped[str] = mapped_column(sa.String(16))
    pool_wide: Mapped[bool] = mapped_column(default=False, server_default=sa.false())
    scopes: Mapped[list[str] | None] = mapped_column(sa.JSON(none_as_null=True))
    secret_hash: Mapped[str] = mapped_column(sa.String(64), unique=True)
    # The user who created it, as SITE/USER, also with a token for machines.
    made_by: Mapped[str | None] = mapped_column(sa.String(129))
    created_at: Mapped[datetime] = mapped_column(default=base.now_utc)
    expires_at: Mapped[datetime | None]
    last_used_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]

    site: Mapped[SiteRecord] = relationship(lazy="raise")
    user: Mapped[UserRecord | None] = relationship(lazy="raise", secondary="user_tokens")


class UserTokenRecord(base.Record):
    """The owner of a token; those of machines belong to the site alone."""

    __tablename__ = "user_tokens"
    __table_args__ = (sa.Index(None, "user_id"),)

    token_id: Mapped[str] = mapped_column(sa.ForeignKey("tokens.id"), primary_key=True)
    user_id: Mapped[int] = mapped_column(sa.ForeignKey("users.id"))


class BrowserSessionRecord(base.Record):
    """A person's log-in with a browser: by a token, and as long as that is valid.

    The browser has the secret as a cookie; only its SHA-256 is kept. `proved_at` is when the
    browser last sent the token itself, or its substitute at the log-in.
    """

    __tablename__ = "browser_sessions"
    __table_args__ = (sa.Index(None, "token_id"),)

    id: Mapped[str] = mapped_column(sa.String(32), primary_key=True)
    secret_hash: Mapped[str] = mapped_column(sa.String(64), unique=True)
    token_id: Mapped[str] = mapped_column(sa.ForeignKey("tokens.id"))
    browser: Mapped[str] = mapped_column(sa.String(200), default="")
    created_at: Mapped[datetime] = mapped_column(default=base.now_utc)
    last_used_at: Mapped[datetime] = mapped_column(default=base.now_utc)
    proved_at: Mapped[datetime] = mapped_column(default=base.now_utc)

    token: Mapped[TokenRecord] = relationship(lazy="raise")


class IdentityRecord(base.Record):
    """The account at a provider by which a user signs on: issuer and subject, never the e-mail.

    With `by_rule` a rule of the settings must fit at each log-in. The refresh token is worth
    nothing without the pool's own secret at the provider, which stands in the settings only.
    """

    __tablename__ = "sign_on_identities"

    issuer: Mapped[str] = mapped_column(sa.String(255), primary_key=True)
    subject: Mapped[str] = mapped_column(sa.String(255), primary_key=True)
    user_id: Mapped[int] = mapped_column(sa.ForeignKey("users.id"), unique=True)
    by_rule: Mapped[bool]
    refresh_token: Mapped[str] = mapped_column(sa.Text, default="")
    renew_at: Mapped[datetime | None]
    created_at: Mapped[datetime] = mapped_column(default=base.now_utc)


class DeviceLoginRecord(base.Record):
    """A computer that waits for a token until its user allows it in a browser (RFC 8628)."""

    __tablename__ = "device_logins"

    secret_hash: Mapped[str] = mapped_column(sa.String(64), primary_key=True)
    user_code: Mapped[str] = mapped_column(sa.String(16), unique=True)
    computer: Mapped[str] = mapped_column(sa.String(64))
    address: Mapped[str] = mapped_column(sa.String(64))
    created_at: Mapped[datetime] = mapped_column(default=base.now_utc)
    expires_at: Mapped[datetime]
    # The token behind the session in which it was allowed.
    token_id: Mapped[str | None] = mapped_column(sa.ForeignKey("tokens.id"))
    is_refused: Mapped[bool] = mapped_column(default=False)


class LoginLinkRecord(base.Record):
    """A secret in an address that logs a browser in once; only its SHA-256 is kept."""

    __tablename__ = "login_links"

    secret_hash: Mapped[str] = mapped_column(sa.String(64), primary_key=True)
    token_id: Mapped[str] = mapped_column(sa.ForeignKey("tokens.id"))
    expires_at: Mapped[datetime]


# Keys and signed statements.


class SiteKeyRecord(base.Record):
    """A public key with which a site signs; `id` is the SHA-256 of the raw key.

    `origin` is empty for a key that the site has proved to hold, and ``site@pool`` for one that
    came with models imported from another pool: such a key signs nothing new here. The same key
    may stand at several sites, so that importing a key cannot keep its owner from registering it
    first. `revocation` is empty, ``superseded`` (earlier signatures stay good) or
    ``compromised`` (none does).
    """

    __tablename__ = "site_keys"

    site_id: Mapped[int] = mapped_column(sa.ForeignKey("sites.id"), primary_key=True)
    id: Mapped[str] = mapped_column(sa.String(64), primary_key=True)
    name: Mapped[base.NameText]
    public_key: Mapped[str] = mapped_column(sa.Text)
    origin: Mapped[str] = mapped_column(sa.String(320), default="", server_default=sa.text("''"))
    created_at: Mapped[datetime] = mapped_column(default=base.now_utc)
    created_by: Mapped[str] = mapped_column(sa.String(129))
    revoked_at: Mapped[datetime | None]
    revocation: Mapped[str] = mapped_column(sa.String(16), default="", server_default=sa.text("''"))

    site: Mapped[SiteRecord] = relationship(lazy="raise")


class StatementRecord(base.Record):
    """A site's signed statement about a version: an in-toto statement in a DSSE envelope.

    `site_id` is the site of the version, which the key belongs to. `origin` is ``site@pool``
    where the version was imported: the statement then names that site.
    """

    __tablename__ = "statements"
    __table_args__ = (
        sa.ForeignKeyConstraint(["site_id", "key_id"], ["site_keys.site_id", "site_keys.id"]),
        sa.Index(None, "site_id", "key_id"),
    )

    version_id: Mapped[int] = mapped_column(sa.ForeignKey("model_versions.id"), primary_key=True)
    site_id: Mapped[int]
    key_id: Mapped[str] = mapped_column(sa.String(64))
    origin: Mapped[str] = mapped_column(sa.String(320), default="", server_default=sa.text("''"))
    envelope: Mapped[base.JsonObject]
    created_at: Mapped[datetime] = mapped_column(default=base.now_utc)

    key: Mapped[SiteKeyRecord] = relationship(lazy="raise")
