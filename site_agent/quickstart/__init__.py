"""The whole journey on faces drawn here, through a real pool."""

from __future__ import annotations

from site_agent.quickstart.journey import run_journey
from site_agent.quickstart.records import (
    BlinkResult,
    QuickstartResult,
    QuickstartSettings,
    Reporter,
    ScoredModel,
)

__all__ = [
    "BlinkResult",
    "QuickstartResult",
    "QuickstartSettings",
    "Reporter",
    "ScoredModel",
    "run_journey",
]
