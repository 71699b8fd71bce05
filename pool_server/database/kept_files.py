"""The files that the records refer to."""

from typing import Any

from sqlalchemy import CompoundSelect, select, union

from pool_server.database import records

_DELETED = "deleted"


def kept_files() -> CompoundSelect[Any, Any]:
    """Select the digest and size of each file, once.

    Those of versions that are not deleted, of rounds, and of secure sessions.
    """
    return union(
        select(records.ModelVersionRecord.digest, records.ModelVersionRecord.size_bytes).where(
            records.ModelVersionRecord.state != _DELETED
        ),
        select(records.RoundContributionRecord.digest, records.RoundContributionRecord.size_bytes),
        select(records.RoundRecord.state_digest, records.RoundRecord.state_size_bytes).where(
            records.RoundRecord.state_digest.is_not(None)
        ),
        select(records.SecureFileRecord.digest, records.SecureFileRecord.size_bytes),
    )
