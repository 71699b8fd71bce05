"""Log-in by OpenID Connect: from the browser to a provider and back, and the rules of entry.

Between the two the pool keeps nothing. The state holds all that the way back needs; it is sealed
by the browser's cookie, as are the nonce and the PKCE verifier. So an answer counts in the browser
that asked, and once: a log-in replaces the cookie.
"""

import base64
import hashlib
import hmac
import json
import logging
import re
import secrets
import shlex
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import timedelta
from functools import partial
from typing import Any

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from pool_server.database.engine import change_rows, write_with_retry
from pool_server.database.records import (
    AuditRecord,
    IdentityRecord,
    SiteRecord,
    TokenRecord,
    UserRecord,
    local_act,
    now_utc,
)
from pool_server.errors import (
    MissingError,
    NotAllowedError,
    PoolError,
    ProviderFailedError,
    SignOnRefusedError,
)
from pool_server.http.session import ServerParts
from pool_server.people import invitations, tokens
from pool_server.people.providers import CLOCK_SKEW_S, Confirmation, Provider, open_provider
from pool_server.people.sites import find_site, has_user
from pool_server.settings import EntryRule, PoolSettings
from pool_server.wire.names import UNSHOWN

STATE_LIFETIME_S = 600
RENEWALS_PER_VALIDITY = 4
"""Three may fail before the person is shut out."""
RETRY_AFTER = timedelta(minutes=10)
RENEWED_AT_ONCE = 200
PROOF_PROMPT = {"prompt": "login"}

log = logging.getLogger("pool_server.people.sign_on")


@dataclass(frozen=True)
class Attempt:
    """A log-in under way."""

    provider: str
    onward: str
    """Path of the page to show afterwards."""
    is_proof: bool
    """The person is logged in, and proves to be there still."""
    began_at: int
    salt: str

    def state(self, cookie: str) -> str:
        content = _encode(json.dumps(asdict(self)).encode())
        return f"{content}.{_seal(cookie, 'state', content)}"


def find_provider(settings: PoolSettings, name: str) -> Provider:
    for provider in settings.sign_on:
        if provider.name == name:
            return open_provider(provider)
    raise MissingError(
        f"this pool has no log-in by {name!r}",
        code="provider_not_found",
        hint="The log-in page shows the institutes that there are.",
    )


def begin(provider: Provider, cookie: str, redirect: str, onward: str, *, is_proof: bool) -> str:
    """Return the provider's address to which the holder of a cookie goes to log in."""
    name = provider.settings.name
    state = Attempt(name, onward, is_proof, int(time.time()), secrets.token_hex(16)).state(cookie)
    challenge = _encode(hashlib.sha256(_seal(cookie, "verifier", state).encode()).digest())
    extra = PROOF_PROMPT if is_proof else {}
    return provider.login_address(
        redirect, state, _seal(cookie, "nonce", state), challenge, **extra
    )


def finish(
    provider: Provider, cookie: str, redirect: str, answer: Mapping[str, str]
) -> tuple[Attempt, Confirmation]:
    """Return the provider's statement about the person behind its answer."""
    attempt = _read_state(answer.get("state", ""), cookie)
    if attempt.provider != provider.settings.name:
        raise SignOnRefusedError("the answer belongs to the log-in by another institute")
    provider.require_own_answer(answer.get("iss"))
    if "code" not in answer:
        reason = re.sub(r"[^a-z_]", "", answer.get("error", ""))[:40]
        raise SignOnRefusedError(
            f"{provider.settings.label} did not log you in ({reason or 'no reason'})",
            hint="Try again, or log in with a token.",
        )
    state = answer["state"]
    confirmation = provider.confirm_code(
        answer["code"], redirect, _seal(cookie, "verifier", state), _seal(cookie, "nonce", state)
    )
    authenticated_at = confirmation.claims.get("auth_time")
    if (
        attempt.is_proof
        and isinstance(authenticated_at, int | float)
        and authenticated_at < attempt.began_at - CLOCK_SKEW_S
    ):
        raise SignOnRefusedError(f"{provider.settings.label} did not ask you to log in again")
    return attempt, confirmation


def _read_state(state: str, cookie: str) -> Attempt:
    content, _, seal = state.partition(".")
    if not cookie or not hmac.compare_digest(
        seal.encode(), _seal(cookie, "state", content).encode()
    ):
        raise SignOnRefusedError(
            "this answer belongs to a log-in that this browser did not begin, or has finished",
            hint="Begin again on the log-in page.",
        )
    attempt = Attempt(**json.loads(base64.urlsafe_b64decode(content + "==")))
    if not 0 <= time.time() - attempt.began_at <= STATE_LIFETIME_S:
        raise SignOnRefusedError(
            "this log-in took too long", hint="Begin again on the log-in page."
        )
    return attempt


def _seal(cookie: str, purpose: str, text: str) -> str:
    key = cookie.encode("utf-8", "surrogateescape")
    return _encode(hmac.digest(key, f"sign-on {purpose} {text}".encode(), hashlib.sha256))


def _encode(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def find_user(
    session: Session, provider: Provider, confirmation: Confirmation
) -> UserRecord | None:
    """Return the user of this account, if there is one."""
    return session.scalar(
        select(UserRecord)
        .join(IdentityRecord, IdentityRecord.user_id == UserRecord.id)
        .where(
            IdentityRecord.issuer == provider.settings.issuer,
            IdentityRecord.subject == confirmation.subject,
        )
    )


def enter(
    session: Session, provider: Provider, confirmation: Confirmation
) -> tuple[TokenRecord, str]:
    """Let a confirmed person in; return the token behind the session, and a new user's name.

    An account is known by issuer and subject alone. An e-mail address, verified by the provider,
    only finds an invitation.
    """
    key = (provider.settings.issuer, confirmation.subject)
    identity = session.get(IdentityRecord, key)
    user = find_user(session, provider, confirmation)
    newcomer = ""
    if identity is None or user is None:
        user, by_rule = _admit(session, provider, confirmation)
        identity = IdentityRecord(
            issuer=key[0], subject=key[1], user_id=user.id, by_rule=by_rule, refresh_token=""
        )
        session.add(identity)
        newcomer = user.name
    site = session.get_one(SiteRecord, user.site_id)
    _confirm(session, provider, confirmation, identity)
    session.flush()
    return _session_token(session, site, user), newcomer


def _confirm(
    session: Session, provider: Provider, confirmation: Confirmation, identity: IdentityRecord
) -> None:
    """Let the provider's word hold for another while."""
    settings = provider.settings
    user = session.get_one(UserRecord, identity.user_id)
    if identity.by_rule:
        site = session.get_one(SiteRecord, user.site_id).name
        rule = _fitting_rule(provider, confirmation, site)
        if rule is None:
            raise NotAllowedError(
                f"{settings.label} no longer states the reason for your entry to {site}",
                code="no_rule_fits",
                hint=f"Ask an admin of {site} for an invitation.",
            )
        user.role = rule.role
    valid = timedelta(hours=settings.valid_hours)
    user.valid_until = now_utc() + valid
    identity.refresh_token = confirmation.refresh_token if settings.renew else ""
    identity.renew_at = (
        now_utc() + valid / RENEWALS_PER_VALIDITY if identity.refresh_token else None
    )


def _admit(
    session: Session, provider: Provider, confirmation: Confirmation
) -> tuple[UserRecord, bool]:
    """Return a new user, and whether a rule made it rather than an invitation."""
    email = confirmation.verified_email
    for invitation in invitations.open_invitations(session, provider.settings.name):
        is_meant = (
            invitation.subject == confirmation.subject
            if invitation.subject
            else _is_same_email(invitation.email, email)
        )
        if is_meant and invitations.use_up(session, invitation):
            user = _new_user(session, invitation.site, confirmation, invitation.role)
            user.pool_wide = invitation.pool_wide
            invitation.user = user
            return user, False
    rule = _fitting_rule(provider, confirmation)
    if rule is not None:
        site = find_site(session, rule.site)
        if site is None:
            raise ProviderFailedError(
                f"a rule of {provider.settings.name} names no site: {rule.site}"
            )
        return _new_user(session, site, confirmation, rule.role), True
    verified = f", {email}" if email else ", with no e-mail address that it has verified"
    raise NotAllowedError(
        f"{provider.settings.label} knows you as {confirmation.subject}{verified}; this pool has "
        "no invitation for you, and no rule that lets you in",
        code="nobody_invited",
        hint="Send this line to the admin of your site: `poolctl admin people invite SITE "
        f"--provider {provider.settings.name} --subject {shlex.quote(confirmation.subject)}`.",
    )


def _is_same_email(invited: str, verified: str) -> bool:
    """Return whether two addresses are one; letters of other alphabets never fold into ASCII."""
    if not invited or not verified:
        return False
    if invited.isascii() and verified.isascii():
        return invited.lower() == verified.lower()
    return invited == verified


def _fitting_rule(
    provider: Provider, confirmation: Confirmation, site: str | None = None
) -> EntryRule | None:
    """Return the first rule that fits a person, or the first for a site."""
    for rule in provider.settings.rules:
        stated = confirmation.claims.get(rule.claim)
        if rule.claim == "email":
            stated = confirmation.verified_email
        values = stated if isinstance(stated, list) else [stated]
        if site in {None, rule.site} and rule.value in [v for v in values if isinstance(v, str)]:
            return rule
    return None


def _new_user(
    session: Session, site: SiteRecord, confirmation: Confirmation, role: str
) -> UserRecord:
    """Make a user named as the provider names the person, or nearly so."""
    claims = confirmation.claims
    wished = claims.get("preferred_username") or claims.get("email") or confirmation.subject
    display_name = claims.get("name")
    shown = display_name if isinstance(display_name, str) else ""
    user = UserRecord(
        site=site,
        name=free_name(str(wished).split("@")[0], lambda name: has_user(session, site.id, name)),
        display_name=re.sub(f"[{UNSHOWN}]", "", shown)[:200],
        email=confirmation.verified_email[:254],
        role=role,
    )
    session.add(user)
    session.flush()
    return user


def free_name(wished: str, is_taken: Callable[[str], bool]) -> str:
    """Return a name of the pool that is close to a wish, and that nobody has."""
    name = re.sub(r"[^a-z0-9._-]+", "-", wished.lower()).strip("._-")[:48] or "user"
    while is_taken(name):
        name = f"{name[:48]}-{secrets.token_hex(3)}"
    return name


def _session_token(session: Session, site: SiteRecord, user: UserRecord) -> TokenRecord:
    """Return the token that carries the user's sessions; nobody knows its secret."""
    token = session.scalar(
        select(TokenRecord)
        .join(TokenRecord.user)
        .where(
            UserRecord.id == user.id,
            TokenRecord.kind == "sign-on",
            TokenRecord.revoked_at.is_(None),
        )
    )
    if token is None:
        name = free_name(
            f"{user.name}-sign-on", lambda name: tokens.has_valid_token(session, site.id, name)
        )
        token, _ = tokens.make_token(session, site, name, user.role, kind="sign-on", user=user)
    # Never more than the user, should the row that joins the two get lost.
    token.role, token.pool_wide = user.role, user.pool_wide
    session.flush()
    return token


def renew_sign_ons(parts: ServerParts) -> None:
    """Ask providers whether accounts still exist, some hours after the last confirmation."""
    issuers = {provider.issuer: provider for provider in parts.settings.sign_on if provider.renew}
    with parts.database.read() as session:
        due = session.execute(
            select(IdentityRecord.issuer, IdentityRecord.subject, IdentityRecord.refresh_token)
            .where(IdentityRecord.renew_at <= now_utc(), IdentityRecord.issuer.in_(issuers))
            .order_by(IdentityRecord.renew_at)
            .limit(RENEWED_AT_ONCE)
        ).all()
    for issuer, subject, refresh_token in due:
        mine = partial(_claim, issuer=issuer, subject=subject, refresh_token=refresh_token)
        # Providers end a whole family of refresh tokens when one is used twice.
        if write_with_retry(parts.database, mine):
            _renew(parts, open_provider(issuers[issuer]), subject, refresh_token)


def _claim(session: Session, issuer: str, subject: str, refresh_token: str) -> bool:
    """Return whether this process is the one that renews."""
    mine = update(IdentityRecord).where(
        IdentityRecord.issuer == issuer,
        IdentityRecord.subject == subject,
        IdentityRecord.refresh_token == refresh_token,
        IdentityRecord.renew_at <= now_utc(),
    )
    return change_rows(session, mine.values(renew_at=now_utc() + RETRY_AFTER)) == 1


def _renew(parts: ServerParts, provider: Provider, subject: str, refresh_token: str) -> None:
    def settle(session: Session) -> None:
        identity = session.get_one(IdentityRecord, (provider.settings.issuer, subject))
        if identity.refresh_token != refresh_token:
            return  # the person has logged in meanwhile
        if refusal is None and confirmation is not None:
            _confirm(session, provider, confirmation, identity)
            return
        user = session.get_one(UserRecord, identity.user_id)
        site = session.get_one(SiteRecord, user.site_id)
        user.valid_until, identity.refresh_token, identity.renew_at = now_utc(), "", None
        details: dict[str, Any] = {"issuer": identity.issuer, "reason": str(refusal)[:200]}
        act = local_act("user.lapse", f"{site.name}/{user.name}", **details)
        session.add(AuditRecord(**act))

    confirmation, refusal = None, None
    try:
        confirmation = provider.confirm_again(subject, refresh_token)
        write_with_retry(parts.database, settle)
    except (SignOnRefusedError, NotAllowedError) as error:
        refusal = error
        write_with_retry(parts.database, settle)
    except PoolError as error:
        log.warning("a log-in by %s was not renewed: %s", provider.settings.name, error)
