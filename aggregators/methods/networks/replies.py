"""Replies to single sites, of methods that make something else for each (FedPAC).

The state of a round holds them, together with the prototypes that all sites get:

======================  ================================================================
entry of the state      content
======================  ================================================================
``prototypes``          F32, (classes, features): mean features of the sites' samples; zeros
                        for classes that no site has reported
``known``               U8, (classes,): 1 for the others
``reply/DIGEST/NAME``   entry NAME of the last layer, for the site with the contribution of
                        this SHA-256; as in the network: type and shape
======================  ================================================================

A site gets its reply only, as a file of its own, which is marked as one that stays there:

======================  ================================================================
entry of a reply        content
======================  ================================================================
metadata ``format``     ``poolctl-site-reply``
metadata ``version``    ``1``
``prototypes, known``   as in the state
``head/NAME``           entry NAME of the last layer
======================  ================================================================

A site describes its classes in its contribution:

=========================  ===============================================================
entry                      content
=========================  ===============================================================
``statistics/counts``      I64, (classes,): numbers of samples, or of frames of clips
``statistics/means``       F32, (classes, features): mean features; zeros without samples
``statistics/variance``    F64, (1,): variance of the mean features
=========================  ===============================================================

The site that sends them may lie, so that shapes and ranges are checked when they are read.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aggregators.errors import ContributionError
from aggregators.formats import dlib_stream, registry, safetensors_file
from aggregators.formats.safetensors_file import header_error
from aggregators.methods.networks.updates import head_entries, require_same_entries
from aggregators.models import ClassStatistics, Float32, OptimiserState, StateDict, TensorInfo

STATISTICS = "statistics/"
MOST_CLASSES = 64
MOST_COUNTED = 2**53
LARGEST_FEATURE = 1e6
"""Features of trained networks are around 1."""


def statistics_entries(statistics: ClassStatistics) -> dict[str, NDArray[np.generic]]:
    """Return the entries of a file."""
    return {
        f"{STATISTICS}counts": statistics.counts,
        f"{STATISTICS}means": statistics.means,
        f"{STATISTICS}variance": np.array([statistics.variance]),
    }


def parse_statistics(network: StateDict) -> ClassStatistics | None:
    """Return the statistics of a contribution's file, or None where it has none."""
    infos: Mapping[str, TensorInfo] = {
        name.removeprefix(STATISTICS): info
        for name, info in network.infos.items()
        if name.startswith(STATISTICS)
    }
    if not infos:
        return None
    shape = infos["means"].shape if "means" in infos else ()
    classes, features = shape if len(shape) == 2 else (0, 0)
    expected = {
        "counts": TensorInfo("I64", (classes,)),
        "means": TensorInfo("F32", (classes, features)),
        "variance": TensorInfo("F64", (1,)),
    }
    if infos != expected or not (1 <= classes <= MOST_CLASSES and features >= 1):
        listed = ", ".join(f"{name[:20]} {i.dtype} {list(i.shape)}" for name, i in infos.items())
        raise header_error(
            "statistics", listed, f"counts, means and variance of 1 to {MOST_CLASSES} classes"
        )
    counts, means, (variance,) = (
        np.asarray(network.tensors[STATISTICS + name]) for name in ("counts", "means", "variance")
    )
    in_range = (
        counts.min() >= 0
        and 1 <= sum(counts.tolist()) <= MOST_COUNTED
        and np.isfinite(means).all()
        and np.abs(means).max() <= LARGEST_FEATURE
        and not means[counts == 0].any()
        and 0 <= variance <= features * LARGEST_FEATURE**2
    )
    if not in_range:
        raise header_error(
            "statistics",
            "numbers out of range",
            f"counts of at least one sample, features of at most {LARGEST_FEATURE:g} with zeros "
            "for classes without samples, and a variance of at least 0",
        )
    return ClassStatistics(counts, means, float(variance))


def check_statistics(
    statistics: ClassStatistics | None, base: StateDict, *, expected: bool
) -> None:
    """Raise `ContributionError` unless a contribution has the statistics that its round wants."""
    if (statistics is not None) != expected:
        names = ("no statistics of classes", "statistics of classes")
        raise ContributionError(f"has {names[not expected]}, expected {names[expected]}")
    if statistics is None:
        return
    head = head_entries(base.infos)
    features = base.infos[head[0]].shape[1]
    if statistics.means.shape[1] != features:
        raise ContributionError(
            f"has means of {statistics.means.shape[1]} features, expected the {features} that "
            f"{head[0]!r} takes"
        )


REPLY = "poolctl-site-reply"

_VERSION = "1"
_COMMON = ("prototypes", "known")
_HEAD = "head/"


@dataclass(frozen=True, eq=False)
class Reply:
    """The reply to a site after a round.

    Attributes
    ----------
    head : mapping of str to array
        The entries of its last layer.
    prototypes : float32, shape (classes, features)
        NaN for classes that no site has reported.
    """

    head: Mapping[str, NDArray[Any]]
    prototypes: Float32


def reply_prefix(contribution: str) -> str:
    """Return the prefix, within the optimiser's state, of the reply to a contribution (SHA-256)."""
    return f"reply/{contribution}/"


def encode_reply(state: OptimiserState, contribution: str) -> bytes | None:
    """Return the file of the reply to a contribution (SHA-256); None if the state holds none."""
    moments, prefix = state.moments, reply_prefix(contribution)
    names = {
        name: _HEAD + name.removeprefix(prefix) for name in moments.infos if name.startswith(prefix)
    }
    if not names:
        return None
    names |= {name: name for name in _COMMON}
    return bytes(
        registry.encode_model(
            StateDict(
                {short: moments.tensors[name] for name, short in names.items()},
                {short: moments.infos[name] for name, short in names.items()},
                {"format": REPLY, "version": _VERSION, **safetensors_file.SITE_ONLY},
            )
        )
    )


def decode_reply(data: dlib_stream.Buffer, infos: Mapping[str, TensorInfo]) -> Reply:
    """Read a reply to a contribution to a network; the pool or site that combined may lie.

    `infos`: The entries of the network.
    """
    content = safetensors_file.TensorsFormat().decode(data)
    safetensors_file.require_metadata(content.metadata, "format", REPLY)
    safetensors_file.require_metadata(content.metadata, "version", _VERSION)
    head = head_entries(infos)
    features = infos[head[0]].shape[1]
    classes = (*content.infos.get("known", TensorInfo("", ())).shape, 0)[0]
    expected = {_HEAD + name: infos[name] for name in head} | {
        "prototypes": TensorInfo("F32", (classes, features)),
        "known": TensorInfo("U8", (classes,)),
    }
    require_same_entries("a reply", expected, "this one", content.infos)
    if not 1 <= classes <= MOST_CLASSES:
        raise safetensors_file.header_error(
            "prototypes", f"{classes} classes", f"1 to {MOST_CLASSES}"
        )
    arrays = {name: np.array(content.tensors[name]) for name in expected}
    for name, values in arrays.items():
        numbers = values.astype(np.float64)
        if not np.isfinite(numbers).all() or np.abs(numbers).max(initial=0) > LARGEST_FEATURE:
            raise safetensors_file.header_error(
                name, "numbers out of range", f"finite ones of at most {LARGEST_FEATURE:g}"
            )
    prototypes = arrays["prototypes"]
    prototypes[arrays["known"] == 0] = np.nan
    return Reply({name: arrays[_HEAD + name] for name in head}, prototypes)
