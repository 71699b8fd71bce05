"""Trials of eyeblink conditioning: their stimuli and onsets."""

import math
from dataclasses import dataclass
from enum import StrEnum

from site_agent.plain_json import Number


class TrialType(StrEnum):
    """The stimuli that a trial presents."""

    CS_ONLY = "cs_only"
    US_ONLY = "us_only"
    PAIRED = "paired"


@dataclass(frozen=True)
class Trial:
    """One trial."""

    trial: str
    """Its number or name, unique in the session."""
    trial_type: TrialType
    cs_onset_s: Number = math.nan
    """Onset of the conditioned stimulus in seconds on the video's clock; NaN for `us_only`."""
    us_onset_s: Number = math.nan
    """Onset of the unconditioned stimulus. For `cs_only` the time at which it would have come,
    where the list says so, else NaN."""
    line: int = 0
    """Of the file that it comes from, 0 where there is none."""
    others: tuple[tuple[str, str], ...] = ()
    """Names and cells of the laboratory's other columns in the list of trials."""

    @property
    def reference_s(self) -> float:
        """Time zero of the trial: the CS onset, or the US onset where there is no CS."""
        return self.us_onset_s if self.trial_type is TrialType.US_ONLY else self.cs_onset_s
