"""Who made tokens and invitations: the audit has it, and nobody can change that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from pool_server.database.records import AuditRecord
from pool_server.http.identity import Caller

TOKEN_MADE, INVITATION_MADE = "token.create", "invitation.create"


@dataclass(frozen=True)
class Creators:
    """The users behind tokens and invitations, as ``SITE/USER`` by identifier.

    Whoever made something with a token for machines is the user who made that token. What no
    user is behind (the pool's first token made it, for example) is not there.
    """

    tokens: Mapping[str, str]
    invitations: Mapping[str, str]


def find_creators(session: Session) -> Creators:
    """Return who made all tokens and invitations that there ever were."""
    entries = session.execute(
        select(
            AuditRecord.action,
            AuditRecord.details,
            AuditRecord.actor_site,
            AuditRecord.actor_user,
            AuditRecord.token_id,
        )
        .where(AuditRecord.action.in_((TOKEN_MADE, INVITATION_MADE)))
        .order_by(AuditRecord.id)
    )
    tokens: dict[str, str] = {}
    invitations: dict[str, str] = {}
    for action, details, site, user, made_with in entries:
        # In the order of the entries, who made the token that something was made with is known.
        maker = f"{site}/{user}" if user else tokens.get(made_with)
        if maker is None:
            continue
        if action == TOKEN_MADE:
            tokens[details["token_id"]] = maker
        else:
            invitations[details["invitation_id"]] = maker
    return Creators(tokens, invitations)


def user_behind(session: Session, caller: Caller) -> str | None:
    """Return the user behind a caller as ``SITE/USER``, also behind a token for machines."""
    if caller.user:
        return f"{caller.site}/{caller.user}"
    return find_creators(session).tokens.get(caller.token_id)
