"""The three protections of sites in rounds of networks, and one sentence for each."""

import math
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from aggregators.methods.registry import find_method
from aggregators.methods.round_options import LocalTraining, split_options

PRIVATE_EPSILON = 8.0
"""The default of rounds."""

FALSE_ALARMS = 0.01
"""Share of other samples that an attack takes for members, where its yield is stated."""


class Protection(StrEnum):
    """A way to keep the other parties from reading a site's data in its contribution."""

    PRIVATE = "private"
    """Differential privacy, accounted for at each site."""
    VERIFIED = "verified"
    """A secure sum of clipped updates, on bases that each lab makes again."""
    OPEN = "open"
    """Contributions that the pool reads."""


OPEN_SENTENCE = (
    "Whoever runs the pool, or made the network you start from, can read pictures from what you "
    "send: choose this only among those to whom you would give the pictures"
)
VERIFIED_SENTENCE = (
    "Nobody who plays fair can read your pictures, nor can the pool and the servers; all other "
    "labs of the round together could, and some of them read what they would from a sum"
)


def find_protection(training: LocalTraining, *, secure: bool) -> Protection:
    """Return the protection that holds in a round, of all that its options and terms say."""
    if training.dp_epsilon is not None:
        return Protection.PRIVATE
    return Protection.VERIFIED if secure else Protection.OPEN


def most_told(epsilon: float, delta: float) -> float:
    """Return which share of members any attack finds at `FALSE_ALARMS`, at most.

    It follows from epsilon and delta alone; the noise of one training usually allows less.
    """
    other = 1 - FALSE_ALARMS - delta
    return min(math.exp(epsilon) * FALSE_ALARMS + delta, 1 - math.exp(-epsilon) * other)


def describe_protection(training: LocalTraining, *, secure: bool) -> str:
    """Return the protection of a round with its sentence."""
    protection = find_protection(training, secure=secure)
    sentence = {Protection.OPEN: OPEN_SENTENCE, Protection.VERIFIED: VERIFIED_SENTENCE}
    return f"{protection}: {sentence.get(protection) or _private_sentence(training, secure=secure)}"


def _private_sentence(training: LocalTraining, *, secure: bool) -> str:
    assert training.dp_epsilon is not None
    others = "Whatever the others do"
    if secure and training.dp_unit == "person":
        # Each lab adds its share of the noise alone.
        others = "While at least half of the labs are honest"
    told = 100 * most_told(training.dp_epsilon, training.dp_delta)
    return (
        f"{others}, at {FALSE_ALARMS:.0%} false alarms at most {told:.4g} % of the "
        f"{training.dp_unit}s that trained can be told from others ({training.protection})"
    )


def protection_of(method: str, options: Mapping[str, Any], *, secure: bool) -> str:
    """Describe the protection of a round; those of landmark models have none of these."""
    if find_method(method).kind != "network":
        return "no differential privacy"
    return describe_protection(split_options(method, options).training, secure=secure)
