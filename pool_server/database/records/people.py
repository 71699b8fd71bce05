"""Sites, their people, and the tokens by which programs are let in."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import JSON, BigInteger, ForeignKey, Index, String, UniqueConstraint, false, text
from sqlalchemy.orm import Mapped, mapped_column, relationship

from pool_server.database.records.base import NameText, Record, now_utc


class SiteRecord(Record):
    """A lab. Its name is the first word of its models' addresses and never changes."""

    __tablename__ = "sites"

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[NameText] = mapped_column(unique=True)
    display_name: Mapped[str] = mapped_column(String(200), default="")
    contact: Mapped[str] = mapped_column(String(200), default="")
    created_at: Mapped[datetime] = mapped_column(default=now_utc)
    # Bytes that all files of the site may take together; None: no limit.
    quota_bytes: Mapped[int | None] = mapped_column(BigInteger)
    # A suspended site is refused with all its tokens; its models stay.
    suspended_at: Mapped[datetime | None]


class UserRecord(Record):
    """A person at a site; the person's tokens never may more than the person.

    `role` is ``viewer``, ``contributor``, ``curator`` or ``admin`` and holds for the person's own
    site; with `pool_wide` it holds for every site.
    """

    __tablename__ = "users"
    __table_args__ = (UniqueConstraint("site_id", "name"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    site_id: Mapped[int] = mapped_column(ForeignKey("sites.id"))
    name: Mapped[NameText]
    display_name: Mapped[str] = mapped_column(String(200), default="")
    email: Mapped[str] = mapped_column(String(254), default="")
    role: Mapped[str] = mapped_column(String(16))
    pool_wide: Mapped[bool] = mapped_column(default=False, server_default=false())
    created_at: Mapped[datetime] = mapped_column(default=now_utc)
    disabled_at: Mapped[datetime | None]

    site: Mapped[SiteRecord] = relationship(lazy="raise")


class InvitationRecord(Record):
    """A secret that makes one user, once; only its SHA-256 is kept."""

    __tablename__ = "invitations"

    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    secret_hash: Mapped[str] = mapped_column(String(64), unique=True)
    site_id: Mapped[int] = mapped_column(ForeignKey("sites.id"))
    email: Mapped[str] = mapped_column(String(254), default="")
    role: Mapped[str] = mapped_column(String(16))
    pool_wide: Mapped[bool] = mapped_column(default=False, server_default=false())
    created_at: Mapped[datetime] = mapped_column(default=now_utc)
    created_by: Mapped[str] = mapped_column(String(129))
    expires_at: Mapped[datetime]
    used_at: Mapped[datetime | None]
    user_id: Mapped[int | None] = mapped_column(ForeignKey("users.id"))
    revoked_at: Mapped[datetime | None]

    site: Mapped[SiteRecord] = relationship(lazy="raise")
    user: Mapped[UserRecord | None] = relationship(lazy="raise")


class TokenRecord(Record):
    """A named token of a site; of the secret only the SHA-256 is kept.

    `kind` is ``program`` or ``feed``; a feed token only reads the feed of its site's events.
    `role` holds for the token's own site, with `pool_wide` for every site. `scopes` narrow what
    the role allows; None: all of it. The secret has 256 random bits, so that a
    plain hash is as good as a slow one.
    """

    __tablename__ = "tokens"
    __table_args__ = (
        # A revoked token frees its name: the lab's "laptop" may get a new one.
        Index(
            "uq_tokens_site_id_name_valid",
            "site_id",
            "name",
            unique=True,
            sqlite_where=text("revoked_at IS NULL"),
            postgresql_where=text("revoked_at IS NULL"),
        ),
    )

    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    site_id: Mapped[int] = mapped_column(ForeignKey("sites.id"))
    name: Mapped[NameText]
    kind: Mapped[str] = mapped_column(String(16), default="program", server_default="program")
    role: Mapped[str] = mapped_column(String(16))
    pool_wide: Mapped[bool] = mapped_column(default=False, server_default=false())
    scopes: Mapped[list[str] | None] = mapped_column(JSON(none_as_null=True))
    secret_hash: Mapped[str] = mapped_column(String(64), unique=True)
    created_at: Mapped[datetime] = mapped_column(default=now_utc)
    expires_at: Mapped[datetime | None]
    last_used_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]

    site: Mapped[SiteRecord] = relationship(lazy="raise")
    user: Mapped[UserRecord | None] = relationship(lazy="raise", secondary="user_tokens")


class UserTokenRecord(Record):
    """Whose a token is; those of machines belong to the site alone."""

    __tablename__ = "user_tokens"
    __table_args__ = (Index(None, "user_id"),)

    token_id: Mapped[str] = mapped_column(ForeignKey("tokens.id"), primary_key=True)
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"))


class BrowserSessionRecord(Record):
    """A person who is logged in with a browser: by a token, and as long as that is valid.

    The browser has the secret as a cookie; only its SHA-256 is kept. `proved_at` is when the
    browser last sent the token itself, or what stood for it at the log-in.
    """

    __tablename__ = "browser_sessions"
    __table_args__ = (Index(None, "token_id"),)

    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    secret_hash: Mapped[str] = mapped_column(String(64), unique=True)
    token_id: Mapped[str] = mapped_column(ForeignKey("tokens.id"))
    browser: Mapped[str] = mapped_column(String(200), default="")
    created_at: Mapped[datetime] = mapped_column(default=now_utc)
    last_used_at: Mapped[datetime] = mapped_column(default=now_utc)
    proved_at: Mapped[datetime] = mapped_column(default=now_utc)

    token: Mapped[TokenRecord] = relationship(lazy="raise")


class LoginLinkRecord(Record):
    """A secret in an address that logs a browser in once; only its SHA-256 is kept."""

    __tablename__ = "login_links"

    secret_hash: Mapped[str] = mapped_column(String(64), primary_key=True)
    token_id: Mapped[str] = mapped_column(ForeignKey("tokens.id"))
    expires_at: Mapped[datetime]
