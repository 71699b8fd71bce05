"""Encoding the file of a contribution to a round as the vector that a lab shares."""

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from aggregators.errors import FormatError
from aggregators.formats import file_digest, read_model
from aggregators.methods.networks.round_files import read_network_contribution
from aggregators.methods.refitting import read_contribution
from aggregators.models import Int64, LeafContribution, StateDict
from aggregators.secure_sum import layout as sum_layout
from aggregators.secure_sum.sharing import NUMBER_BYTES, UInt64
from site_agent.errors import InvalidInputError


class EncodedContribution(NamedTuple):
    """The vector that a lab shares: uint64, shape (size of the layout,)."""

    layout: sum_layout.SumLayout
    numbers: UInt64


def encode_network_file(
    contribution: Path, base: Path, budget: sum_layout.BitBudget, *, mean: str = "samples"
) -> EncodedContribution:
    """Return the differences from the base that a contribution's file holds, and its weight.

    Parameters
    ----------
    mean : str
        ``samples``: the weight is the number of samples. ``sites``: it is 1 for each lab, so the
        sum states the number of labs as its samples.

    Raises
    ------
    FormatError
        The file is not a contribution to a network.
    IncompatibleModelsError
        It was made to another base.
    ConversionError
        A number is out of the charter's range; names the entry.
    """
    network = _read_network(base)
    update = read_network_contribution(contribution)
    if mean == "sites":
        update = replace(update, samples=1)
    layout = sum_layout.network_layout(network, file_digest(base), update.settings)
    numbers = sum_layout.encode_network(layout, update, network, budget)
    return EncodedContribution(layout, numbers)


def encode_leaf_presence(contribution: Path, budget: sum_layout.BitBudget) -> EncodedContribution:
    """Return which leaves a lab reaches, for the first of the two sessions of a leaf refinement."""
    changes = read_contribution(contribution)
    layout = sum_layout.leaf_presence_layout(changes)
    return EncodedContribution(layout, sum_layout.encode_leaves(layout, changes, budget))


def encode_leaf_sums(
    contribution: Path, labs_per_leaf: Int64, least: int, budget: sum_layout.BitBudget
) -> EncodedContribution:
    """Return the weighted changes of the leaves that enough labs reach, for the second session.

    Parameters
    ----------
    labs_per_leaf : int64, shape (leaves,)
        The result of the first session (`read_presence`).
    least : int
        The charter's `least_labs`.
    """
    changes: LeafContribution = read_contribution(contribution)
    layout = sum_layout.leaf_sums_layout(
        sum_layout.leaf_presence_layout(changes), labs_per_leaf, least
    )
    return EncodedContribution(layout, sum_layout.encode_leaves(layout, changes, budget))


def read_presence(path: Path) -> Int64:
    """Return how many labs reach each leaf, from the result of a first session."""
    content = path.read_bytes()
    if len(content) % NUMBER_BYTES:
        raise InvalidInputError(f"{path}: not the result of a session that counts labs by leaf")
    return np.frombuffer(content, dtype="<i8").astype(np.int64)


def _read_network(path: Path) -> StateDict:
    model = read_model(path)
    if not isinstance(model, StateDict):
        raise FormatError("base", 0, "another model", "a network").about(str(path))
    return model
