"""The three protections of sites in rounds of networks, and one sentence for each."""

import math
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from aggregators.errors import OptionError
from aggregators.methods.registry import METHODS, find_method
from aggregators.methods.round_options import LocalTraining, split_options

PRIVATE_EPSILON = 8.0
"""The default of rounds."""

_PRIVATE_KINDS = ("gaze", "itracker", "near-eye")
"""Beginnings of the architectures that differential privacy covers."""

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


def protect(
    method: str,
    options: Mapping[str, Any],
    protection: Protection | None = None,
    *,
    secure: bool,
    base: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the options with which a new round has its protection.

    `protection`: By default verified in a secure sum, else private. `base`: The fingerprint of the
    network, where it is known.

    Raises `OptionError` if the method, the base or the options do not allow the protection.
    """
    options, chosen = dict(options), METHODS.get(method)
    if chosen is None or chosen.kind != "network":
        if protection is not None:
            raise OptionError(f"found a protection for {method}, expected a method for networks")
        return options
    if protection is None:
        is_summed = secure and options.get("dp_epsilon") is None
        protection = Protection.VERIFIED if is_summed else Protection.PRIVATE
    if protection is Protection.PRIVATE:
        options.setdefault("dp_epsilon", PRIVATE_EPSILON)
        if not chosen.trains_plainly:
            reason = f"sites of {method} do more than train"
        elif any("running_" in name for name in (base or {}).get("tensors", ())):
            reason = "BatchNorm mixes samples"
        elif not str((base or {}).get("architecture", "gaze")).startswith(_PRIVATE_KINDS):
            reason = f"it does not cover {(base or {})['architecture']}"
        else:
            return options
        raise OptionError(
            f"found a private round, which differential privacy protects, but {reason}; expected "
            "the protection open, or verified with a secure sum"
        )
    if options.get("dp_epsilon") is not None:
        raise OptionError(f"found dp_epsilon with the protection {protection}, expected private")
    if secure != (protection is Protection.VERIFIED):
        kind = "a secure sum" if secure else "no secure sum"
        raise OptionError(f"found {kind} with the protection {protection}")
    return options


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
