"""The board of the secure sum: sessions of labs and aggregation servers, and their messages.

How a session works on the pool: a lab opens it with the agreed descriptor; each party posts signed
messages, which are stored unchanged; encrypted shares and sums are files of the session
(`endpoints.SessionFiles`). The parties check signatures and keys themselves: the pool only ensures
that a site posts in its own name, once in each phase, and within limits.
"""

import hashlib
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import cache
from typing import TypeVar

from sqlalchemy import Select, delete, func, select, update
from sqlalchemy.orm import Session, joinedload, selectinload

from pool_server.database.engine import count_rows
from pool_server.database.records import (
    RoundRecord,
    SecureFileRecord,
    SecureParticipantRecord,
    SecurePostRecord,
    SecureSessionRecord,
    UploadRecord,
    now_utc,
)
from pool_server.errors import ConflictError, MissingError, NotAllowedError, RefusedError
from pool_server.http.audit import record_act
from pool_server.http.identity import Caller
from pool_server.http.parameters import describe
from pool_server.people.sites import get_site, require_room
from pool_server.rounds import service as rounds
from pool_server.wire import rounds as secure

SummaryT = TypeVar("SummaryT", bound=secure.SecureSessionSummary)

LONGEST = timedelta(days=366)
MOST_SESSIONS = 100
"""Maximum number of unended sessions opened by one site."""
MOST_SESSIONS_A_DAY = 200
"""Maximum number of sessions that one site opens within 24 hours, ended or not."""
MOST_POSTS = 32
"""Maximum number of messages of one site in one session; the protocol has about ten phases."""
POSTS_PER_PAGE = 20
CHARACTERS_PER_PAGE = 2 * secure.MOST_ENVELOPE_CHARACTERS
"""Maximum length of one answer's messages; it always has at least one."""


def get_session(session: Session, caller: Caller, key: str) -> SecureSessionRecord:
    """Return a session in which the caller's site takes part, or any for an admin."""
    record = find_session(session, key)
    if record is None or not (caller.is_admin or caller.site in sites_of(record)):
        raise MissingError(
            f"the pool has no session {key} that site {caller.site!r} takes part in",
            code="session_not_found",
            hint="`poolctl secure status` lists your sessions.",
        )
    return record


def open_session(
    session: Session, caller: Caller, request: secure.SecureSessionRequest
) -> tuple[secure.SecureSessionResponse, bool]:
    """Open a session, or return the one with this descriptor; the flag says whether it is new."""
    names = sorted(set(request.sites))
    caller.require_upload_to(caller.site)
    if not caller.is_admin and caller.site not in names:
        raise NotAllowedError(f"site {caller.site!r} is not among the sites of the session")
    key = hashlib.sha256(request.descriptor.encode()).hexdigest()
    known = find_session(session, key)
    if known is not None:
        if sites_of(known) != names or _round_key(known) != request.round_id:
            raise ConflictError(
                f"session {key} already exists, with other sites or for another round",
                code="session_exists",
            )
        return describe_session(known), False
    now = now_utc()
    if not now < request.ends_at <= now + LONGEST:
        raise RefusedError(
            f"the end {request.ends_at:%Y-%m-%d %H:%M %Z} cannot be kept; expected "
            f"one between now and {LONGEST.days} days from now"
        )
    opened_here = SecureSessionRecord.site_id == caller.site_id
    if count_rows(session, opened_here, SecureSessionRecord.ends_at > now) >= MOST_SESSIONS:
        raise ConflictError(
            f"site {caller.site!r} has {MOST_SESSIONS} sessions under way, which is the most "
            "allowed",
            code="too_many_sessions",
        )
    lately = SecureSessionRecord.created_at > now - timedelta(days=1)
    if count_rows(session, opened_here, lately) >= MOST_SESSIONS_A_DAY:
        raise ConflictError(
            f"site {caller.site!r} has opened {MOST_SESSIONS_A_DAY} sessions within 24 hours, "
            "which is the most allowed",
            code="too_many_sessions",
            hint="Open the next one tomorrow.",
        )
    size_bytes = len(request.descriptor.encode())
    require_room(session, caller.site_id, "", size_bytes, announced=True, noun="descriptor")
    held = None if request.round_id is None else rounds.get_round(session, caller, request.round_id)
    opened = SecureSessionRecord(
        key=key,
        descriptor=request.descriptor,
        site_id=caller.site_id,
        token_id=caller.token_id,
        created_by=caller.name,
        ends_at=request.ends_at,
        round_id=None if held is None else held.id,
        participants=[
            SecureParticipantRecord(site_id=get_site(session, name).id) for name in names
        ],
    )
    session.add(opened)
    record_act(session, caller, "secure.open", key, sites=names, round=request.round_id)
    session.flush()
    session.expire(opened)
    return describe_session(get_session(session, caller, key)), True


def post(
    session: Session, caller: Caller, key: str, request: secure.SecurePostRequest
) -> tuple[secure.SecurePostResponse, bool]:
    """Add a message unless it is already there; the flag says whether it is new."""
    record = get_session(session, caller, key)
    require_participant(caller, record, request.sender)
    lock_session(session, record.id)
    site = get_site(session, request.sender)
    known = session.scalar(
        select(SecurePostRecord)
        .options(joinedload(SecurePostRecord.site))
        .where(
            SecurePostRecord.session_id == record.id,
            SecurePostRecord.phase == request.phase,
            SecurePostRecord.site_id == site.id,
        )
    )
    if known is not None:
        if known.envelope == request.envelope:
            return describe_post(known), False
        raise ConflictError(
            f"site {site.name!r} has posted another message in phase {request.phase!r} of session "
            f"{key}",
            code="post_exists",
        )
    of_session = SecurePostRecord.session_id == record.id
    if count_rows(session, of_session, SecurePostRecord.site_id == site.id) >= MOST_POSTS:
        raise ConflictError(
            f"site {site.name!r} has posted {MOST_POSTS} messages in session {key}, which is the "
            "most allowed",
            code="too_many_posts",
        )
    size_bytes = len(request.envelope.encode())
    require_room(session, site.id, "", size_bytes, announced=True, noun="message")
    added = SecurePostRecord(
        session_id=record.id,
        phase=request.phase,
        site_id=site.id,
        site=site,
        envelope=request.envelope,
        token_id=caller.token_id,
        created_at=now_utc(),
    )
    session.add(added)
    record_act(session, caller, "secure.post", key, site=site.name, phase=request.phase)
    session.flush()
    return describe_post(added), True


def require_participant(caller: Caller, record: SecureSessionRecord, site: str) -> None:
    """Raise `NotAllowedError` unless the caller may act for a site that takes part."""
    caller.require_upload_to(site)
    if site not in sites_of(record):
        raise NotAllowedError(f"site {site!r} takes no part in session {record.key}")


def describe_session(record: SecureSessionRecord) -> secure.SecureSessionResponse:
    return describe_as(secure.SecureSessionResponse, record)


def describe_as(kind: type[SummaryT], record: SecureSessionRecord) -> SummaryT:
    fields = {"session_id": record.key, "sites": sites_of(record), "round_id": _round_key(record)}
    return describe(kind, record, **fields)


def describe_post(record: SecurePostRecord) -> secure.SecurePostResponse:
    return describe(secure.SecurePostResponse, record, number=record.id, sender=record.site.name)


def sites_of(record: SecureSessionRecord) -> list[str]:
    return sorted(participant.site.name for participant in record.participants)


def _round_key(record: SecureSessionRecord) -> str | None:
    return None if record.round is None else record.round.key


@cache
def whole_sessions() -> Select[SecureSessionRecord]:
    """Select sessions with all attributes of a response."""
    return select(SecureSessionRecord).options(
        joinedload(SecureSessionRecord.round),
        selectinload(SecureSessionRecord.participants).joinedload(SecureParticipantRecord.site),
    )


def find_session(session: Session, key: str) -> SecureSessionRecord | None:
    return session.scalar(whole_sessions().where(SecureSessionRecord.key == key))


def lock_session(session: Session, session_id: int) -> None:
    """Lock out additions to a session by others until the transaction ends.

    So messages become visible in the order of their numbers, and a reader continuing after the
    last known one misses none.
    """
    session.execute(
        select(SecureSessionRecord.id).where(SecureSessionRecord.id == session_id).with_for_update()
    )


def select_sessions(site_id: int | None, round_key: str | None) -> Select[SecureSessionRecord]:
    """Select the sessions of a site and of a round; None selects all."""
    query = whole_sessions()
    if site_id is not None:
        taken_part = select(SecureParticipantRecord.session_id).where(
            SecureParticipantRecord.site_id == site_id
        )
        query = query.where(SecureSessionRecord.id.in_(taken_part))
    if round_key is not None:
        rounds = select(RoundRecord.id).where(RoundRecord.key == round_key)
        query = query.where(SecureSessionRecord.round_id.in_(rounds))
    return query


def read_page(
    session: Session, session_id: int, after_id: int
) -> tuple[Sequence[SecurePostRecord], bool]:
    """Return the next page of messages by arrival, and whether there are more."""
    rows = session.execute(
        select(SecurePostRecord.id, func.length(SecurePostRecord.envelope))
        .where(SecurePostRecord.session_id == session_id, SecurePostRecord.id > after_id)
        .order_by(SecurePostRecord.id)
        .limit(POSTS_PER_PAGE + 1)
    ).all()
    page: list[int] = []
    characters = 0
    for number, length in rows[:POSTS_PER_PAGE]:
        characters += length
        if page and characters > CHARACTERS_PER_PAGE:
            break
        page.append(number)
    posts = session.scalars(
        select(SecurePostRecord)
        .options(joinedload(SecurePostRecord.site))
        .where(SecurePostRecord.id.in_(page))
        .order_by(SecurePostRecord.id)
    ).all()
    return posts, len(rows) > len(page)


def find_file(session: Session, session_id: int, digest: str) -> SecureFileRecord | None:
    """Return a file of a session, from any of its sites."""
    return session.scalars(
        select(SecureFileRecord)
        .where(SecureFileRecord.session_id == session_id, SecureFileRecord.digest == digest)
        .limit(1)
    ).first()


def delete_ended(session: Session, before: datetime) -> set[str]:
    """Delete the sessions that ended before a moment; return the digests of their files."""
    ended = list(
        session.scalars(select(SecureSessionRecord.id).where(SecureSessionRecord.ends_at < before))
    )
    of_files = SecureFileRecord.session_id.in_(ended)
    digests = set(session.scalars(select(SecureFileRecord.digest).where(of_files)))
    session.execute(
        update(UploadRecord)
        .where(UploadRecord.secure_session_id.in_(ended))
        .values(secure_session_id=None)
    )
    session.execute(delete(SecureFileRecord).where(of_files))
    session.execute(delete(SecurePostRecord).where(SecurePostRecord.session_id.in_(ended)))
    participants = SecureParticipantRecord.session_id.in_(ended)
    session.execute(delete(SecureParticipantRecord).where(participants))
    session.execute(delete(SecureSessionRecord).where(SecureSessionRecord.id.in_(ended)))
    return digests
