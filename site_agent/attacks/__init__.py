"""Attacks that measure what federated training reveals of the people whose pictures trained.

All run at home, on one's own or on drawn data. Each is a function of plain data: the networks
that leaked, samples with gaze, and what an attacker may know besides.
"""

from site_agent.attacks.leaks import (
    ALL_SITES,
    LEAKS,
    Leak,
    LeakedRound,
    LeakLosses,
    LeakName,
    Losses,
    RecordedRound,
    apply_update,
    leak_of,
    leak_of_network,
    record_rounds,
    sample_losses,
)
from site_agent.attacks.membership import (
    Candidates,
    ShadowLosses,
    membership_signals,
    predict_from_updates,
    probe_by_shadows,
    probe_membership,
    reference_losses,
)
from site_agent.attacks.reidentification import (
    Reidentification,
    UpdateComparison,
    reidentify,
    scores_by_losses,
)
from site_agent.attacks.scores import Separation, separation

__all__ = [
    "ALL_SITES",
    "LEAKS",
    "Candidates",
    "Leak",
    "LeakLosses",
    "LeakName",
    "LeakedRound",
    "Losses",
    "RecordedRound",
    "Reidentification",
    "Separation",
    "ShadowLosses",
    "UpdateComparison",
    "apply_update",
    "leak_of",
    "leak_of_network",
    "membership_signals",
    "predict_from_updates",
    "probe_by_shadows",
    "probe_membership",
    "record_rounds",
    "reference_losses",
    "reidentify",
    "sample_losses",
    "scores_by_losses",
    "separation",
]
