"""The tables of the database: people, models, rounds, uploads, merges and the audit."""

# ruff: noqa: F403
from typing import Any

from sqlalchemy import CompoundSelect, select, union

from pool_server.database.records.base import *
from pool_server.database.records.jobs import *
from pool_server.database.records.models import *
from pool_server.database.records.models import ModelVersionRecord
from pool_server.database.records.people import *
from pool_server.database.records.rounds import *
from pool_server.database.records.rounds import (
    RoundContributionRecord,
    RoundRecord,
    SecureFileRecord,
)

_DELETED = "deleted"
OPEN_UPLOADS = ("receiving", "checking")
"""The states of an upload under way."""


def kept_files() -> CompoundSelect[Any, Any]:
    """Select the digest and size of each file, once.

    Those of versions that are not deleted, of rounds, and of secure sessions.
    """
    return union(
        select(ModelVersionRecord.digest, ModelVersionRecord.size_bytes).where(
            ModelVersionRecord.state != _DELETED
        ),
        select(RoundContributionRecord.digest, RoundContributionRecord.size_bytes),
        select(RoundRecord.state_digest, RoundRecord.state_size_bytes).where(
            RoundRecord.state_digest.is_not(None)
        ),
        select(SecureFileRecord.digest, SecureFileRecord.size_bytes),
    )
