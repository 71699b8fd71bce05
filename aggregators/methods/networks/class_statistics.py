"""What a site says of its classes in a contribution, as entries of the contribution's file.

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

import numpy as np
from numpy.typing import NDArray

from aggregators.errors import ContributionError
from aggregators.formats.safetensors_file import header_error
from aggregators.methods.networks.updates import head_entries
from aggregators.models import ClassStatistics, StateDict, TensorInfo

STATISTICS = "statistics/"
MOST_CLASSES = 64
MOST_COUNTED = 2**53
LARGEST_FEATURE = 1e6
"""Features of trained networks are around 1."""


def statistics_entries(found: ClassStatistics) -> dict[str, NDArray[np.generic]]:
    """Return the entries of a file."""
    return {
        f"{STATISTICS}counts": found.counts,
        f"{STATISTICS}means": found.means,
        f"{STATISTICS}variance": np.array([found.variance]),
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
    wanted = {
        "counts": TensorInfo("I64", (classes,)),
        "means": TensorInfo("F32", (classes, features)),
        "variance": TensorInfo("F64", (1,)),
    }
    if infos != wanted or not (1 <= classes <= MOST_CLASSES and features >= 1):
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


def check_statistics(found: ClassStatistics | None, base: StateDict, *, wanted: bool) -> None:
    """Raise `ContributionError` unless a contribution has the statistics that its round wants."""
    if (found is not None) != wanted:
        words = ("no statistics of classes", "statistics of classes")
        raise ContributionError(f"has {words[not wanted]}, expected {words[wanted]}")
    if found is None:
        return
    head = head_entries(base.infos)
    features = base.infos[head[0]].shape[1]
    if found.means.shape[1] != features:
        raise ContributionError(
            f"has means of {found.means.shape[1]} features, expected the {features} that "
            f"{head[0]!r} takes"
        )
