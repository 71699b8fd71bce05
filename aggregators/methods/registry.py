"""The table of aggregation methods."""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from aggregators.errors import UnknownMethodError
from aggregators.methods import leaf_refit, mwma, wba
from aggregators.methods.contract import AggregationMethod
from aggregators.methods.networks import masked_mean
from aggregators.methods.networks.fedavg import FedAvg
from aggregators.methods.networks.fedopt import FedAdagrad, FedAdam, FedAvgM, FedYogi
from aggregators.methods.networks.fedpac import FedPac
from aggregators.methods.networks.robust import GeometricMedian, Krum, Median, NormClip, TrimmedMean

_ALL: tuple[AggregationMethod[Any], ...] = (
    mwma.Mwma(),
    wba.WbaFinal(),
    wba.WbaCascade(),
    leaf_refit.LeafRefit(),
    FedAvg(),
    FedAvgM(),
    FedAdam(),
    FedYogi(),
    FedAdagrad(),
    TrimmedMean(),
    Median(),
    Krum(),
    NormClip(),
    GeometricMedian(),
    masked_mean.FedProx(),
    masked_mean.FedPer(),
    FedPac(),
    masked_mean.FedSelect(),
    masked_mean.FedCpf(),
    masked_mean.CpfRandom(),
    masked_mean.Local(),
)

METHODS: Mapping[str, AggregationMethod[Any]] = {method.name: method for method in _ALL}


def find_method(name: str) -> AggregationMethod[Any]:
    """Return the method of this name, or raise `UnknownMethodError`."""
    try:
        return METHODS[name]
    except KeyError:
        known = ", ".join(METHODS)
        near = get_close_matches(name.lower().replace("_", "-"), METHODS, n=1)
        meant = f"; did you mean {near[0]}?" if near else ""
        raise UnknownMethodError(
            f"unknown aggregation method {name!r}, expected one of {known}{meant}"
        ) from None


def list_round_methods() -> list[str]:
    """Return the names of the methods that rounds can be held with."""
    return [name for name, method in METHODS.items() if method.contribution is not None]


def merge_keys(fingerprint: Mapping[str, Any]) -> dict[str, str]:
    """Return a key for each method that can merge a model with this fingerprint.

    A method can merge two models if and only if their keys for it are equal.
    """
    keys = ((name, method.merge_key(fingerprint)) for name, method in METHODS.items())
    return {name: key for name, key in keys if key is not None}
