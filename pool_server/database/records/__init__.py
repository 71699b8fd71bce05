"""Database tables, those of one concept in one module."""

from __future__ import annotations

from pool_server.database.records.activity import AuditRecord, EventRecord
from pool_server.database.records.base import Record, now_utc
from pool_server.database.records.jobs import MergeJobRecord, UploadRecord
from pool_server.database.records.models import (
    AliasRecord,
    DownloadRecord,
    GrantRecord,
    LabelRecord,
    MergeKeyRecord,
    MetricRecord,
    ModelRecord,
    ModelVersionRecord,
    ParentRecord,
    PictureRecord,
    RecipeRecord,
    SearchEntryRecord,
    SuccessorRecord,
    TermRecord,
    WithdrawalFlagRecord,
    WithdrawalRecord,
)
from pool_server.database.records.people import (
    BrowserSessionRecord,
    InvitationRecord,
    LoginLinkRecord,
    SiteRecord,
    TokenRecord,
    UserRecord,
    UserTokenRecord,
)
from pool_server.database.records.rounds import (
    RoundContributionRecord,
    RoundParticipantRecord,
    RoundRecord,
    SecureFileRecord,
    SecureParticipantRecord,
    SecurePostRecord,
    SecureSessionRecord,
)
from pool_server.database.records.statements import (
    EvaluationRecord,
    EvaluationScoreRecord,
    SiteKeyRecord,
    StatementRecord,
)

__all__ = [
    "AliasRecord",
    "AuditRecord",
    "BrowserSessionRecord",
    "DownloadRecord",
    "EvaluationRecord",
    "EvaluationScoreRecord",
    "EventRecord",
    "GrantRecord",
    "InvitationRecord",
    "LabelRecord",
    "LoginLinkRecord",
    "MergeJobRecord",
    "MergeKeyRecord",
    "MetricRecord",
    "ModelRecord",
    "ModelVersionRecord",
    "ParentRecord",
    "PictureRecord",
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
