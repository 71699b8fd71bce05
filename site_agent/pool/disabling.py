"""The effect of disabling a user: tokens and invitations that are refused, and those that stay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pool_server.wire.people import InvitationResponse, TokenResponse, UserResponse
    from site_agent.pool.client import PoolClient


@dataclass(frozen=True)
class DisablingEffect:
    """The tokens, invitations and people that depend on a user."""

    user: str
    """``SITE/USER``."""
    refused_tokens: Sequence[TokenResponse]
    refused_invitations: Sequence[InvitationResponse]
    staying_tokens: Sequence[TokenResponse]
    """Valid tokens that the user created for machines or other users."""
    staying_users: Sequence[UserResponse]
    """People with an account from an invitation of the user."""


def find_disabling_effect(pool: PoolClient, user: str) -> DisablingEffect:
    """Return the effect of disabling ``SITE/USER``, as the pool shows it to its admin now."""
    users, tokens, invitations = pool.users.list(), pool.tokens.list(), pool.invitations.list()
    now = datetime.now(UTC)
    disabled = {_name(person) for person in users if person.disabled_at is not None}
    valid = [
        token
        for token in tokens
        if token.revoked_at is None and (token.expires_at is None or token.expires_at > now)
    ]
    made = [invitation for invitation in invitations if invitation.made_by == user]
    invited = {
        f"{invitation.site}/{invitation.used_by}"
        for invitation in made
        if invitation.used_by is not None
    }
    return DisablingEffect(
        user,
        refused_tokens=[token for token in valid if _owner(token) == user],
        refused_invitations=[
            invitation
            for invitation in made
            if invitation.used_at is None
            and invitation.revoked_at is None
            and invitation.expires_at > now
        ],
        staying_tokens=[
            token
            for token in valid
            if token.made_by == user and _owner(token) not in {user, *disabled}
        ],
        staying_users=[
            person for person in users if _name(person) in invited and person.disabled_at is None
        ],
    )


def _name(user: UserResponse) -> str:
    return f"{user.site}/{user.name}"


def _owner(token: TokenResponse) -> str:
    return f"{token.site}/{token.user}" if token.user else ""
