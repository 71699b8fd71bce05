"""Entries of the audit: of acts, and of acts that were refused.

An act is recorded in its own transaction. A refused one leaves nothing else behind, so its entry
is written in a transaction of its own before the answer goes out.
"""

import logging
import re
from http import HTTPStatus
from typing import cast

import anyio.to_thread
from fastapi import Request
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from pool_server.database.engine import write_with_retry
from pool_server.database.records import AuditRecord
from pool_server.errors import PoolError, TooManyRequestsError
from pool_server.http.identity import Caller, caller_behind
from pool_server.http.rate_limits import rate_limits
from pool_server.http.session import server_parts
from pool_server.wire.names import UNSHOWN

ACTION = "request.refuse"
OUTCOME = "refused"
_READING = frozenset({"GET", "HEAD", "OPTIONS"})
_MOST_MESSAGE = 500
_MOST_PATH = 256
# Characters of a name, an identifier, a digest or a reference. Paths with other values are
# not recorded, so that nobody can write words of their own into the audit.
_VALUE = re.compile(r"[A-Za-z0-9._:-]{1,80}")
_UNSHOWN = re.compile(f"[{UNSHOWN}]")


def record_act(
    session: Session,
    caller: Caller,
    action: str,
    subject: str,
    *,
    outcome: str = "done",
    **details: object,
) -> None:
    """Append one entry: `caller` did `action` (``"upload.complete"``) to `subject`."""
    session.add(
        AuditRecord(
            actor_site=caller.site,
            actor_token=caller.token_name,
            actor_user=caller.user,
            token_id=caller.token_id,
            pool_wide=caller.pool_wide,
            address=caller.address,
            request_id=caller.request_id,
            action=action,
            subject=subject,
            outcome=outcome,
            details=details,
        )
    )


log = logging.getLogger("pool_server.activity.audit")


async def record_refusal(request: Request, error: PoolError) -> None:
    """Append an entry if an act of a signed-in caller was refused.

    Entries are never deleted, so nobody may fill the audit at will: if one token is refused all
    the time, further refusals only go to the log.
    """
    if request.method in _READING or error.status != HTTPStatus.FORBIDDEN:
        return
    caller = caller_behind(request)
    values = cast("dict[str, str]", request.path_params).values()
    if caller is None or not all(_VALUE.fullmatch(str(value)) for value in values):
        return
    try:
        rate_limits(request).refusals.take(caller.token_id, "refused acts")
        await anyio.to_thread.run_sync(_record, request, caller, error)
    except TooManyRequestsError:
        log.warning(
            "%s/%s is refused too often for the audit to keep it: %s %s",
            caller.site, caller.token_name, request.method, request.url.path,
        )  # fmt: skip
    except (PoolError, SQLAlchemyError):
        # The refusal itself stands.
        log.exception("a refused act could not be written into the audit")


def _record(request: Request, caller: Caller, error: PoolError) -> None:
    write_with_retry(
        server_parts(request).database,
        lambda session: record_act(
            session,
            caller,
            ACTION,
            subject_of(request),
            outcome=OUTCOME,
            method=request.method,
            path=request.url.path[:_MOST_PATH],
            code=error.code,
            message=escape_unshown(error.message[:_MOST_MESSAGE]),
        ),
    )


def escape_unshown(text: str) -> str:
    """Return text with invisible and misleading characters escaped."""
    return _UNSHOWN.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def subject_of(request: Request) -> str:
    """Return the subject of a request as other entries name it, or else its path."""
    values = cast("dict[str, str]", request.path_params)
    if "site" not in values:
        return request.url.path[:_MOST_PATH]
    subject = values["site"]
    for name in ("name", "user"):
        if name in values:
            subject += f"/{values[name]}"
    return f"{subject}@{values['reference']}" if "reference" in values else subject
