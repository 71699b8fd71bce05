"""Database tables, those of one concept in one module."""

from __future__ import annotations

from pool_server.database.records.audit import AuditRecord
from pool_server.database.records.base import Record, now_utc
from pool_server.database.records.evaluations import EvaluationRecord, EvaluationScoreRecord
from pool_server.database.records.events import EventRecord
from pool_server.database.records.merge_jobs import MergeJobRecord
from pool_server.database.records.model_versions import (
    DownloadRecord,
    LabelRecord,
    MergeKeyRecord,
    MetricRecord,
    ModelVersionRecord,
    ParentRecord,
    RecipeRecord,
    SuccessorRecord,
    TermRecord,
    WithdrawalFlagRecord,
    WithdrawalRecord,
)
from pool_server.database.records.models import AliasRecord, GrantRecord, ModelRecord
from pool_server.database.records.people import (
    InvitationRecord,
    SiteRecord,
    TokenRecord,
    UserRecord,
    UserTokenRecord,
)
from pool_server.database.records.rounds import (
    RoundContributionRecord,
    RoundParticipantRecord,
    RoundRecord,
)
from pool_server.database.records.search import SearchEntryRecord
from pool_server.database.records.secure import (
    SecureFileRecord,
    SecureParticipantRecord,
    SecurePostRecord,
    SecureSessionRecord,
)
from pool_server.database.records.signatures import SiteKeyRecord, StatementRecord
from pool_server.database.records.uploads import UploadRecord

__all__ = [
    "AliasRecord",
    "AuditRecord",
    "DownloadRecord",
    "EvaluationRecord",
    "EvaluationScoreRecord",
    "EventRecord",
    "GrantRecord",
    "InvitationRecord",
    "LabelRecord",
    "MergeJobRecord",
    "MergeKeyRecord",
    "MetricRecord",
    "ModelRecord",
    "ModelVersionRecord",
    "ParentRecord",
    "RecipeRecord",
    "Record",
    "RoundContributionRecord",
    "RoundParticipantRecord",
    "RoundRecord",
    "SearchEntryRecord",
    "SecureFileRecord",
    "SecureParticipantRecord",
    "SecurePostRecord",
    "SecureSessionRecord",
    "SiteKeyRecord",
    "SiteRecord",
    "StatementRecord",
    "SuccessorRecord",
    "TermRecord",
    "TokenRecord",
    "UploadRecord",
    "UserRecord",
    "UserTokenRecord",
    "WithdrawalFlagRecord",
    "WithdrawalRecord",
    "now_utc",
]
