"""Studies of models: what sub-models of several sites give, alone, merged and refined."""

from site_agent.studies.conducting import StudyOutcome, conduct_study, look_at_study
from site_agent.studies.model_study import StepOutcome
from site_agent.studies.outcome import table_data
from site_agent.studies.parts import StudyData, named_parts, split_into_parts
from site_agent.studies.protocol import Protocol
from site_agent.studies.table import StudyTable

__all__ = [
    "Protocol",
    "StepOutcome",
    "StudyData",
    "StudyOutcome",
    "StudyTable",
    "conduct_study",
    "look_at_study",
    "named_parts",
    "split_into_parts",
    "table_data",
]
