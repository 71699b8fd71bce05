"""Settings of measuring eyeblink conditioning: every window in milliseconds, every level in FEC."""

from enum import StrEnum

from pydantic import Field

from site_agent.errors import ConditioningError
from site_agent.settings import Settings

Window = tuple[float, float]


class CrRule(StrEnum):
    """The quantity with which the CR amplitude is compared."""

    FEC = "fec"
    """A fixed closure: amplitude >= threshold."""
    UR_SHARE = "ur-share"
    """A share of the session's median UR amplitude."""
    BASELINE_SD = "baseline-sd"
    """Mean FEC of the CR window above the baseline's mean by this multiple of its SD."""


class Censored(StrEnum):
    """Why a response has no onset."""

    EARLY = "early"
    """It begins at or before the earliest onset sought (`onset_floor_ms`)."""
    NOT_FOUND = "not-found"


class Rejection(StrEnum):
    """Why a trial is missing from all results; it is never counted as a non-response."""

    BEFORE_RECORDING = "before-recording"
    AFTER_RECORDING = "after-recording"
    NO_BASELINE = "no-baseline"
    NO_CR_WINDOW = "no-cr-window"
    MISSING_SAMPLES = "missing-samples"
    UNSTABLE_BASELINE = "unstable-baseline"
    CLOSED_BEFORE_CS = "closed-before-cs"


EARLIEST_RESPONSE_MS = 50.0
"""No lid answers the CS sooner."""
REJECT_RULES = (Rejection.MISSING_SAMPLES, Rejection.UNSTABLE_BASELINE, Rejection.CLOSED_BEFORE_CS)
"""Rules that a study may choose to apply or not; with the other reasons nothing can be measured."""


class ConditioningSettings(Settings, error=ConditioningError):
    """Definitions of the conditioning measures. Time zero is the CS onset."""

    baseline_ms: Window = (-500.0, 0.0)
    """Window of the baseline before the CS (before the US in us_only trials). Where a recording has
    hardly a frame before the CS it may end up to 50 ms after it: no lid answers sooner."""
    least_baseline_samples: int = Field(default=3, ge=1)
    """Trials with fewer samples of the eyes in the baseline window are not measured. Recordings
    that begin with the trial have one or two at 21 frames/s."""
    reject_rules: tuple[Rejection, ...] = REJECT_RULES
    """Which rules reject trials: missing-samples, unstable-baseline, closed-before-cs."""
    largest_missing_share: float = Field(default=0.25, ge=0, le=1)
    """Share of the trial's time without valid samples above which it is rejected."""
    closed_before_cs_fec: float = Field(default=0.15, ge=0)
    """A trial is rejected where FEC in the last 100 ms before the CS exceeds the session's resting
    level (median of its baselines) by more than this."""
    cr_window_ms: Window = (-40.0, -2.0)
    """Window relative to the US. The CR amplitude is its mean FEC, less the baseline."""
    cr_rule: CrRule = CrRule.FEC
    """Which amplitude is a CR."""
    cr_threshold: float = Field(default=0.10, gt=0)
    """Which amplitude is a CR."""
    cr_needs_onset: bool = False
    """Count a CR only where an onset is found at or after onset_floor_ms."""
    onset_floor_ms: float = Field(default=50.0, ge=0)
    """No CR onset is sought before."""
    ur_window_ms: Window = (10.0, 150.0)
    """Window after the US in which the UR has its peak. Before its start the US has not moved the
    lid, so that samples up to there still belong to the CR."""
    default_cs_us_ms: float = Field(default=450.0, gt=0)
    """CS-US interval of cs_only trials where the trial list does not give it."""
    least_valid_trials: int = Field(default=5, ge=1)
    """A study leaves out sessions in which fewer trials with a CS are valid (fewer than half in
    short sessions): a percentage of two trials says next to nothing."""
    smoothing_ms: float = Field(default=50.0, gt=0)
    """Full width of the local polynomials that velocity and peaks are read from; at low frame rates
    they take three samples (peaks: the samples themselves)."""

    def __post_init__(self) -> None:
        for name in ("baseline_ms", "cr_window_ms", "ur_window_ms"):
            start, end = getattr(self, name)
            self._require(start < end, name, "start < end")
        self._require(
            self.baseline_ms[1] <= EARLIEST_RESPONSE_MS,
            "baseline_ms",
            f"an end at most {EARLIEST_RESPONSE_MS:g} ms after the CS (0)",
        )
        self._require(self.cr_window_ms[1] <= 0, "cr_window_ms", "an end at or before the US (0)")
        self._require(self.ur_window_ms[0] >= 0, "ur_window_ms", "a start at or after the US (0)")
        self._require(
            set(self.reject_rules) <= set(REJECT_RULES), "reject_rules", ", ".join(REJECT_RULES)
        )

    def _require(self, holds: bool, name: str, expected: str) -> None:
        if not holds:
            raise self.refused(name, getattr(self, name), expected)


SENSITIVITY_RULES: tuple[tuple[CrRule, float], ...] = (
    (CrRule.FEC, 0.05),
    (CrRule.FEC, 0.10),
    (CrRule.FEC, 0.15),
    (CrRule.UR_SHARE, 0.10),
    (CrRule.BASELINE_SD, 3.0),
)
"""The CR criteria of the sensitivity table."""


def cr_rule_text(rule: CrRule, threshold: float) -> str:
    """Return a criterion in words, such as ``amplitude >= 0.10 FEC``."""
    if rule is CrRule.FEC:
        return f"amplitude >= {threshold:.2f} FEC"
    if rule is CrRule.UR_SHARE:
        return f"amplitude >= {100 * threshold:g} % of the UR"
    return f"mean >= baseline mean + {threshold:g} SD"
