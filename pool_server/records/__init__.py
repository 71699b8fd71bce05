"""Database tables, one a module."""

from __future__ import annotations

from pool_server.records.audit import AuditRecord
from pool_server.records.base import Record, now_utc
from pool_server.records.labels import LabelRecord
from pool_server.records.merge_keys import MergeKeyRecord
from pool_server.records.metrics import MetricRecord
from pool_server.records.model_versions import ModelVersionRecord
from pool_server.records.models import ModelRecord
from pool_server.records.recipes import ParentRecord, RecipeRecord
from pool_server.records.round_contributions import RoundContributionRecord
from pool_server.records.round_participants import RoundParticipantRecord
from pool_server.records.rounds import RoundRecord
from pool_server.records.sites import SiteRecord
from pool_server.records.tokens import TokenRecord
from pool_server.records.uploads import UploadRecord

__all__ = [
    "AuditRecord",
    "LabelRecord",
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
    "SiteRecord",
    "TokenRecord",
    "UploadRecord",
    "now_utc",
]
