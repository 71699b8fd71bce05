"""Writing the audit: always in the transaction of the act itself."""

from __future__ import annotations

from typing import Any

from sqlalchemy.orm import Session

from pool_server.database.records import AuditRecord
from pool_server.http.identity import Caller


def record_act(
    session: Session,
    caller: Caller,
    action: str,
    subject: str,
    *,
    outcome: str = "done",
    **details: Any,
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
