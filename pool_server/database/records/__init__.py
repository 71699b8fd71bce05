"""Database tables, one noun a module."""

from __future__ import annotations

from pool_server.database.records.aliases import AliasRecord
from pool_server.database.records.audit import AuditRecord
from pool_server.database.records.base import Record, now_utc
from pool_server.database.records.downloads import DownloadRecord
from pool_server.database.records.evaluations import EvaluationRecord, EvaluationScoreRecord
from pool_server.database.records.events import EventRecord, WebhookDeliveryRecord, WebhookRecord
from pool_server.database.records.grants import GrantRecord
from pool_server.database.records.labels import LabelRecord
from pool_server.database.records.merge_jobs import MergeJobRecord
from pool_server.database.records.merge_keys import MergeKeyRecord
from pool_server.database.records.metrics import MetricRecord
from pool_server.database.records.model_versions import ModelVersionRecord
from pool_server.database.records.models import ModelRecord
from pool_server.database.records.recipes import ParentRecord, RecipeRecord
from pool_server.database.records.round_contributions import RoundContributionRecord
from pool_server.database.records.round_participants import RoundParticipantRecord
from pool_server.database.records.rounds import RoundRecord
from pool_server.database.records.search import SearchEntryRecord
from pool_server.database.records.signatures import SiteKeyRecord, StatementRecord
from pool_server.database.records.sites import SiteRecord
from pool_server.database.records.terms import TermRecord
from pool_server.database.records.tokens import TokenRecord, UserTokenRecord
from pool_server.database.records.uploads import UploadRecord
from pool_server.database.records.users import InvitationRecord, UserRecord
from pool_server.database.records.withdrawals import (
    SuccessorRecord,
    WithdrawalFlagRecord,
    WithdrawalRecord,
)

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
    "SiteKeyRecord",
    "SiteRecord",
    "StatementRecord",
    "SuccessorRecord",
    "TermRecord",
    "TokenRecord",
    "UploadRecord",
    "UserRecord",
    "UserTokenRecord",
    "WebhookDeliveryRecord",
    "WebhookRecord",
    "WithdrawalFlagRecord",
    "WithdrawalRecord",
    "now_utc",
]
