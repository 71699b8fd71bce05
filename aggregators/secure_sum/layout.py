"""The layout of a secure sum: the meaning of its numbers, and the way there and back.

A vector has groups of values, and each group has an integer weight w. A value x is encoded as
round(2^f w x) and a weight as itself, so a sum over labs gives the weighted mean of each group.

There are four sorts of sums: the updates of a network, weighted by samples; which leaves of a
forest a lab reaches at all (0 or 1); the changes of leaves, weighted by the samples that reach
them; and named numbers, such as the statistics of a joint study, in which all labs count equally.
"""

import base64
import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator

from aggregators.errors import ConversionError, IncompatibleModelsError, OptionError
from aggregators.formats.safetensors_file import NUMPY_TYPES
from aggregators.methods.networks.updates import FLOAT_DTYPES, numpy_type, require_same_entries
from aggregators.models import (
    Float64,
    Int64,
    LeafContribution,
    NetworkContribution,
    StateDict,
    TensorInfo,
)
from aggregators.secure_sum.sharing import UInt64, from_signed, to_signed

MOST_BITS = 59
"""A sum of at most 2^59, and the roundings of all labs, stay below half of the field."""


@dataclass(frozen=True)
class BitBudget:
    """The use of the field's bits."""

    fraction: int = 24
    """A value with weight w is rounded to multiples of 2^-fraction / w."""
    magnitude: int = 8
    """Values are at most 2^magnitude in magnitude."""
    weight: int = 16
    """Weights are at most 2^weight."""
    labs: int = 10
    """At most 2^labs labs take part."""

    def __post_init__(self) -> None:
        bits = (self.fraction, self.magnitude, self.weight, self.labs)
        if min(bits) < 0 or sum(bits) > MOST_BITS:
            raise OptionError(
                f"bits of fraction, magnitude, weight and labs: found {bits}, "
                f"expected none below 0 and a sum of at most {MOST_BITS}"
            )


def encode(
    values: Float64,
    weights: Int64,
    budget: BitBudget,
    name_of: Callable[[int], str] = "number {}".format,
) -> UInt64:
    """Encode the vector of one lab.

    Raises `ConversionError` if a value or weight is out of range; nothing is clipped.

    Parameters
    ----------
    values : float64, shape (groups, size)
        Finite and at most 2^b in magnitude; zero in groups of weight 0.
    weights : int64, shape (groups,)
        At least 0.
    name_of : callable
        Returns a value's name in the error, from its position.

    Returns
    -------
    uint64, shape (groups * size + groups,)
        The values row by row, then the weights.
    """
    most = 2.0**budget.magnitude
    good = np.abs(values.reshape(-1)) <= most  # false for NaN
    if not good.all():
        index = int(np.argmin(good))
        raise ConversionError(
            f"{name_of(index)}: found {values.reshape(-1)[index]}, "
            f"expected a number of magnitude at most {most:g}"
        )
    if len(weights) and not 0 <= weights.min() <= weights.max() <= 2**budget.weight:
        wrong = int(np.argmax((weights < 0) | (weights > 2**budget.weight)))
        raise ConversionError(
            f"weight {wrong}: found {weights[wrong]}, expected 0 to {2**budget.weight}"
        )
    scaled = np.rint(values * weights[:, np.newaxis] * 2.0**budget.fraction).astype(np.int64)
    return from_signed(np.concatenate([scaled.reshape(-1), weights]))


def decode_sum(
    total: UInt64, groups: int, labs: int, budget: BitBudget, least_weight: int = 0
) -> tuple[Float64, Int64]:
    """Return the weighted mean of each group, and the sums of the weights.

    Raises `ValueError` if no labs with inputs in range have this sum.

    Parameters
    ----------
    total : uint64, shape (groups * size + groups,)
        The sum of the vectors that `encode` returned for `labs` labs.
    least_weight : int
        Of each lab in each group.

    Returns
    -------
    mean : float64, shape (groups, size)
        Zero in groups of weight 0.
    weights : int64, shape (groups,)
    """
    signed = to_signed(total)
    sums, weights = signed[:-groups].reshape(groups, -1), signed[len(signed) - groups :]
    least, most_weight = labs * least_weight, labs * 2**budget.weight
    if not (least <= weights.min() <= weights.max() <= most_weight and weights.any()):
        raise ValueError(
            f"sums of weights from {weights.min()} to {weights.max()}, expected {least} to "
            f"{most_weight}, and one above 0"
        )
    most = weights * 2 ** (budget.fraction + budget.magnitude) + labs
    # One unit of rounding for each lab is allowed for. Beyond that, some lab has sent numbers that
    # `encode` refuses.
    wrong = np.abs(sums) > most[:, np.newaxis]
    if wrong.any():
        index = int(np.argmax(wrong))
        raise ValueError(f"sum {index} is {sums.reshape(-1)[index]}: out of range for its weight")
    divisor = np.maximum(weights, 1).astype(np.float64) * 2.0**budget.fraction
    return sums / divisor[:, np.newaxis], weights


_Count = Annotated[int, Field(ge=0, le=2**31)]


class SumEntry(BaseModel):
    """One entry of a network; `content` has the base's bytes of one that is not trained."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    dtype: Literal[
        "BOOL", "I8", "U8", "I16", "U16", "F16", "BF16", "I32", "U32", "F32", "I64", "U64", "F64"
    ]
    shape: tuple[_Count, ...]
    content: str = Field(default="", description="In base64.")


class SumNumber(BaseModel):
    """A named number, at most 2^`bits` in magnitude at each lab."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(max_length=200)
    bits: int = Field(ge=-64, le=64)


class SumLayout(BaseModel):
    """The meaning of the numbers in a secure sum.

    Attributes
    ----------
    base_digest : str
        As in the contributions.
    weights : str
        SHA-256 of a network's trained numbers alone: sums on two files with equal weights are two
        sums of the same updates.
    entries : tuple of SumEntry
        Those of a network, by name.
    leaves, parts : int
        Of the (thinned) base forest.
    kept : str
        The leaves that enough labs reach: one bit a leaf, in base64.
    settings : dict
        Of the contributions.
    numbers : tuple of SumNumber
        Those of a sum of named numbers.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["network", "leaf-presence", "leaf-sums", "numbers"]
    base_digest: str
    weights: str = ""
    entries: tuple[SumEntry, ...] = ()
    leaves: _Count = 0
    parts: _Count = 0
    kept: str = ""
    settings: dict[str, Any] = {}
    numbers: tuple[SumNumber, ...] = ()

    @model_validator(mode="after")
    def _check_sizes(self) -> "SumLayout":
        """Refuse a small text that stands for a huge vector, before anything is made of it."""
        mask_bytes = -(-self.leaves // 8) if self.kind == "leaf-sums" else 0
        if len(self.kept) != 4 * -(-mask_bytes // 3):
            raise ValueError(f"kept: found {len(self.kept)} characters for {self.leaves} leaves")
        for entry in self.entries:
            bytes_of = np.dtype(NUMPY_TYPES[entry.dtype]).itemsize * math.prod(entry.shape)
            kept = 0 if entry.dtype in FLOAT_DTYPES else bytes_of
            if len(entry.content) != 4 * -(-kept // 3):
                raise ValueError(
                    f"entry {entry.name[:80]!r}: content of another size than its shape"
                )
        return self

    @property
    def subject(self) -> str:
        """The subject of a sum, the same for all files that hold the base."""
        return f"{self.kind}:{self.weights or self.base_digest}"

    @property
    def digest(self) -> str:
        """SHA-256 of the layout, in hexadecimal."""
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def kept_leaves(self) -> NDArray[np.bool_]:
        """Which leaves are summed, shape (leaves,)."""
        bits = np.frombuffer(base64.b64decode(self.kept), dtype=np.uint8)
        return np.unpackbits(bits, count=self.leaves).astype(bool)

    @property
    def trained(self) -> tuple[SumEntry, ...]:
        """The floating-point entries, which are summed."""
        return tuple(entry for entry in self.entries if entry.dtype in FLOAT_DTYPES)

    @property
    def shape(self) -> tuple[int, int]:
        """Groups of values that share a weight, and the values of a group."""
        if self.kind == "network":
            return 1, sum(math.prod(entry.shape) for entry in self.trained)
        if self.kind == "leaf-presence":
            return self.leaves, 0
        if self.kind == "numbers":
            return 1, len(self.numbers)
        return int(self.kept_leaves.sum()), 2 * self.parts

    @property
    def size(self) -> int:
        """Numbers of an encoded vector."""
        groups, values = self.shape
        return groups * values + groups

    def use(self, budget: BitBudget) -> BitBudget:
        """Return how this layout uses a charter's bits: numbers need none for weights."""
        if self.kind != "numbers":
            return budget
        return replace(budget, fraction=budget.fraction + budget.weight, weight=0)


def network_layout(
    base: StateDict, base_digest: str, settings: Mapping[str, Any] | None = None
) -> SumLayout:
    """Return the layout of updates to a network; untrained numbers come from the base."""
    entries, weights = [], hashlib.sha256()
    for name, info in sorted(base.infos.items()):
        if info.dtype in FLOAT_DTYPES:
            weights.update(json.dumps([name, info.dtype, info.shape]).encode())
            weights.update(np.ascontiguousarray(base.tensors[name]).tobytes())
        # Counters and masks cannot be summed; those of the base stand in the layout, so all labs
        # and servers agree on them.
        content = b"" if info.dtype in FLOAT_DTYPES else base.tensors[name].tobytes()
        entries.append(
            SumEntry(
                name=name,
                dtype=info.dtype,  # type: ignore[arg-type]
                shape=info.shape,
                content=base64.b64encode(content).decode(),
            )
        )
    return SumLayout(
        kind="network",
        base_digest=base_digest,
        weights=weights.hexdigest(),
        entries=tuple(entries),
        settings=dict(settings or {}),
    )


def leaf_presence_layout(contribution: LeafContribution) -> SumLayout:
    """Return the layout of the sum that counts the labs reaching each leaf."""
    return SumLayout(
        kind="leaf-presence",
        base_digest=contribution.base_digest,
        leaves=len(contribution.counts),
        parts=contribution.part_count,
        settings=dict(contribution.settings),
    )


def leaf_sums_layout(presence: SumLayout, labs_per_leaf: Int64, least: int) -> SumLayout:
    """Return the layout of the sum over the leaves that at least `least` labs reach.

    Raises `IncompatibleModelsError` if no leaf is reached by that number of labs.

    Parameters
    ----------
    labs_per_leaf : int64, shape (leaves,)
        The sum of a session with the layout `presence`.
    """
    if not (labs_per_leaf >= least).any():
        raise IncompatibleModelsError("labs per leaf", f"{least}", f"{labs_per_leaf.max()}")
    kept = base64.b64encode(np.packbits(labs_per_leaf >= least).tobytes()).decode()
    return SumLayout(**{**presence.model_dump(), "kind": "leaf-sums", "kept": kept})


def encode_network(
    layout: SumLayout, contribution: NetworkContribution, base: StateDict, budget: BitBudget
) -> UInt64:
    """Return the encoded differences from the base of one lab, and its number of samples.

    Raises `IncompatibleModelsError` if the contribution was made to another base, or has other
    entries, and `ConversionError` if a number is out of range; names the entry.
    """
    _require_base(layout, contribution.base_digest)
    infos = {entry.name: TensorInfo(entry.dtype, tuple(entry.shape)) for entry in layout.entries}
    require_same_entries("the layout", infos, "the contribution", contribution.network.infos)
    parts = []
    for entry in layout.trained:
        values = contribution.network.tensors[entry.name].astype(np.float64)
        if contribution.holds == "values":
            values -= base.tensors[entry.name].astype(np.float64)
        parts.append(values.reshape(-1))
    values = np.concatenate(parts)[np.newaxis]

    def name_of(index: int) -> str:
        for entry, part in zip(layout.trained, parts, strict=True):
            if index < len(part):
                return f"entry {entry.name!r}, difference {index}"
            index -= len(part)
        raise IndexError(index)

    return encode(values, np.array([contribution.samples], dtype=np.int64), budget, name_of)


def encode_leaves(layout: SumLayout, contribution: LeafContribution, budget: BitBudget) -> UInt64:
    """Return the encoded leaf changes of one lab and their counts, or which leaves it reaches.

    Raises `IncompatibleModelsError` if the contribution was made to another base or has other
    leaves, and `ConversionError` if a number is out of range; names the leaf.
    """
    _require_base(layout, contribution.base_digest)
    if contribution.changes.shape != (layout.leaves, layout.parts, 2):
        raise IncompatibleModelsError(
            "leaves", f"{(layout.leaves, layout.parts, 2)}", f"{contribution.changes.shape}"
        )
    counts = contribution.counts.astype(np.int64)
    if layout.kind == "leaf-presence":
        return encode(np.zeros((layout.leaves, 0)), np.minimum(counts, 1), budget)
    kept = np.flatnonzero(layout.kept_leaves)
    changes = contribution.changes[kept].astype(np.float64).reshape(len(kept), -1)
    return encode(
        changes, counts[kept], budget, lambda index: f"leaf {kept[index // changes.shape[1]]}"
    )


def encode_numbers(layout: SumLayout, numbers: Mapping[str, float], budget: BitBudget) -> UInt64:
    """Return the encoded numbers of one lab.

    Raises `ConversionError` if one is out of its range; names it.
    """
    used = layout.use(budget)
    for number in layout.numbers:
        if not abs(numbers[number.name]) <= 2.0**number.bits:
            raise ConversionError(
                f"{number.name}: found {numbers[number.name]}, "
                f"expected a number of magnitude at most 2^{number.bits}"
            )
    scaled = [numbers[item.name] * 2.0 ** (used.magnitude - item.bits) for item in layout.numbers]
    return encode(np.array([scaled]), np.ones(1, dtype=np.int64), used)


def name_sums(layout: SumLayout, mean: Float64, labs: int, budget: BitBudget) -> dict[str, float]:
    """Return the sum of each named number over the labs: the same bits on every machine.

    `mean`, shape (1, numbers): As `decode_sum` returns it.
    """
    magnitude = layout.use(budget).magnitude
    return {
        number.name: float(value) * labs * 2.0 ** (number.bits - magnitude)
        for number, value in zip(layout.numbers, mean[0], strict=True)
    }


def combine_network(
    layout: SumLayout, mean: Float64, samples: int, settings: dict[str, Any]
) -> NetworkContribution:
    """Return one contribution that stands for all labs of a sum.

    Parameters
    ----------
    mean : float64, shape (1, numbers)
    samples : int
        The sum of the weights.
    """
    tensors: dict[str, NDArray[np.generic]] = {}
    first = 0
    for entry in layout.entries:
        if entry.dtype in FLOAT_DTYPES:
            last = first + math.prod(entry.shape)
            values = mean[0, first:last].astype(numpy_type(entry.dtype))
            tensors[entry.name], first = values.reshape(entry.shape), last
        else:
            content = np.frombuffer(base64.b64decode(entry.content), NUMPY_TYPES[entry.dtype])
            tensors[entry.name] = content.reshape(entry.shape)
    infos = {entry.name: TensorInfo(entry.dtype, tuple(entry.shape)) for entry in layout.entries}
    return NetworkContribution(
        StateDict(tensors, infos), "differences", samples, layout.base_digest, settings
    )


def combine_leaves(layout: SumLayout, mean: Float64, counts: Int64) -> LeafContribution:
    """Return one contribution that stands for all labs of a sum; leaves not kept have count 0."""
    kept = layout.kept_leaves
    changes = np.zeros((layout.leaves, layout.parts, 2), dtype=np.float32)
    changes[kept] = mean.reshape(-1, layout.parts, 2)
    totals = np.zeros(layout.leaves, dtype=np.uint32)
    totals[kept] = counts
    return LeafContribution(changes, totals, layout.base_digest, layout.settings)


def _require_base(layout: SumLayout, digest: str) -> None:
    if digest != layout.base_digest:
        raise IncompatibleModelsError(
            "base",
            layout.base_digest[:16],
            digest[:16],
            first_name="the secure sum",
            other_name="the contribution",
        )
