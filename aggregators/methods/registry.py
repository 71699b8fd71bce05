"""The table of aggregation methods: a new one is one file and one line here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aggregators.errors import UnknownMethodError
from aggregators.methods.contract import AggregationMethod
from aggregators.methods.fedavg import FedAvg
from aggregators.methods.leaf_refit import LeafRefit
from aggregators.methods.mwma import Mwma
from aggregators.methods.wba_cascade import WbaCascade
from aggregators.methods.wba_final import WbaFinal

_ALL: tuple[AggregationMethod[Any], ...] = (
    Mwma(),
    WbaFinal(),
    WbaCascade(),
    LeafRefit(),
    FedAvg(),
)

METHODS: Mapping[str, AggregationMethod[Any]] = {method.name: method for method in _ALL}


def find_method(name: str) -> AggregationMethod[Any]:
    """Return the method of this name.

    Raises
    ------
    UnknownMethodError
        Lists the names there are.
    """
    try:
        return METHODS[name]
    except KeyError:
        known = ", ".join(METHODS)
        raise UnknownMethodError(
            f"no aggregation method is called {name!r}; there are {known}"
        ) from None


def merge_keys(fingerprint: Mapping[str, Any]) -> dict[str, str]:
    """Return, for each method that can merge such a model, a key of what it merges with.

    Two models can be merged by a method if and only if their keys for it are equal.

    Parameters
    ----------
    fingerprint : mapping
        As made by `aggregators.formats.fingerprint`.
    """
    keys = ((name, method.merge_key(fingerprint)) for name, method in METHODS.items())
    return {name: key for name, key in keys if key is not None}
