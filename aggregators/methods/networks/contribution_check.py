"""Whether a contribution to a network belongs into a round, wherever the round is held.

Who may lie here is the site that sends it. A contribution that is let through can still be wrong,
but it cannot end the round, or leave a result that no network can have.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from aggregators.errors import ContributionError
from aggregators.methods.networks.layout import FLOAT_DTYPES, require_same_entries
from aggregators.models import NetworkContribution, StateDict, TensorInfo

LARGEST_DIFFERENCE = 1e6
"""Of a weight. Trained weights are around 1; sums of some more than this leave float32 useless."""

_NUMBERS_AT_ONCE = 1 << 20
_ROUNDING = 1e-5
"""A variance that shrinks to 0 can be missed by so much of itself: (v - b) + b in float32."""


def check_network_contribution(
    contribution: NetworkContribution,
    base: StateDict,
    *,
    base_digest: str,
    settings: Mapping[str, Any],
) -> None:
    """Raise unless a contribution holds a usable difference from the base of its round.

    Parameters
    ----------
    base : StateDict
        The network from which the site was to start.
    base_digest : str
        SHA-256 of its file.
    settings : mapping
        What `LocalTraining.shared` gives for the round.

    Raises
    ------
    ContributionError
        It was made from another base or with other settings; it holds values, infinities, NaN,
        differences above 1e6, or nothing but zeros; or a running variance would become negative.
    IncompatibleModelsError
        Its entries are not those of the base.
    """
    if contribution.base_digest != base_digest:
        raise ContributionError(
            f"was made from another base: found {contribution.base_digest[:16]}..., "
            f"expected {base_digest[:16]}..."
        )
    for field, wanted in settings.items():
        if contribution.settings.get(field) != wanted:
            found = contribution.settings.get(field)
            raise ContributionError(f"was made with {field} {found}, the round asks for {wanted}")
    if contribution.holds != "differences":
        raise ContributionError(f"holds {contribution.holds}, expected differences from the base")
    infos = base.infos
    require_same_entries("the base", infos, "the contribution", contribution.network.infos)
    changed = False
    for name, info in infos.items():
        difference = contribution.network.tensors[name].reshape(-1)
        start = base.tensors[name].reshape(-1)
        for first in range(0, difference.size, _NUMBERS_AT_ONCE):
            part = difference[first : first + _NUMBERS_AT_ONCE]
            _check_numbers(name, info, part, start[first : first + _NUMBERS_AT_ONCE])
            changed = changed or bool(part.any())
    if not changed:
        # Whoever sends zeros takes no part, but makes the sum that of one site fewer.
        raise ContributionError("every difference is 0, expected those of a trained network")


def _check_numbers(name: str, info: TensorInfo, difference: Any, start: Any) -> None:
    """Refuse some of an entry's numbers; `difference` and `start` have shape (numbers,)."""
    if info.dtype not in FLOAT_DTYPES:
        return
    if not np.isfinite(difference).all():
        raise ContributionError(
            f"entry {name!r} ({info.dtype}) holds infinities or NaN, expected finite numbers; the "
            "training may have diverged"
        )
    largest = float(np.abs(difference).max(initial=0.0))
    if largest > LARGEST_DIFFERENCE:
        raise ContributionError(
            f"entry {name!r} changes by {largest:.3g}, expected at most {LARGEST_DIFFERENCE:g}; "
            "the training may have diverged"
        )
    if name.endswith("running_var"):
        lowest = float((start + difference + _ROUNDING * np.abs(start)).min(initial=0.0))
        if lowest < 0:
            raise ContributionError(
                f"entry {name!r} would become {lowest:.3g}, expected a variance of at least 0"
            )
