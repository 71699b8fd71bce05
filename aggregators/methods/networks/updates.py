"""The updates of sites, and computing a network from them block by block.

Sites give whole networks, or contributions to a base. A method's arithmetic is a function of
one block of one entry: an array (sites, numbers) in float64. Entries are computed when they are
read, and a block of all sites takes 1 MiB, so memory does not grow with networks or sites (with
networks it does for FedOpt, which keeps the mean update). The files of the inputs must stay in
place until the result is written.
"""

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from aggregators import errors, models
from aggregators.formats.safetensors_file import SITE_ONLY
from aggregators.methods.contract import AggregationMethod, ContributionKind, OptionsT
from aggregators.methods.sub_models import SubModel, SubModels

FLOAT_DTYPES = frozenset({"F64", "F32", "F16", "BF16"})
ARCHITECTURE_FIELDS = ("architecture", "architecture_version")


class NetworkMethod(AggregationMethod[OptionsT]):
    """Base of the methods for networks; their rounds collect network updates."""

    kind = "network"
    contribution: ClassVar[ContributionKind | None] = "network-update"
    output_formats = ("safetensors",)

    def merge_key(self, fingerprint: Mapping[str, Any]) -> str | None:
        if fingerprint.get("kind") != self.kind:
            return None
        # Names, types and shapes decide if numbers can be averaged, and the architecture if their
        # mean has a meaning.
        layout = {
            "tensors": fingerprint["tensors"],
            **{field: fingerprint.get(field) for field in ARCHITECTURE_FIELDS},
        }
        text = json.dumps(layout, sort_keys=True, separators=(",", ":"))
        return "layout-" + hashlib.sha256(text.encode()).hexdigest()


def require_same_architecture(networks: Sequence[tuple[str, models.StateDict]]) -> None:
    """Raise `IncompatibleModelsError` if (name, network) differ in architecture from the first."""
    first_name, first = networks[0]
    for other_name, other in networks[1:]:
        for field in ARCHITECTURE_FIELDS:
            mine, theirs = first.metadata.get(field), other.metadata.get(field)
            if mine != theirs:
                raise errors.IncompatibleModelsError(
                    field,
                    mine or "not stated",
                    theirs or "not stated",
                    first_name=first_name,
                    other_name=other_name,
                )


def require_same_entries(
    first_name: str,
    first: Mapping[str, models.TensorInfo],
    other_name: str,
    other: Mapping[str, models.TensorInfo],
) -> None:
    """Raise `IncompatibleModelsError` for the first entry in which two networks differ."""
    for name in [*first, *(name for name in other if name not in first)]:
        mine, theirs = first.get(name), other.get(name)
        if mine != theirs:
            raise errors.IncompatibleModelsError(
                f"entry {name!r}",
                _describe(mine),
                _describe(theirs),
                first_name=first_name,
                other_name=other_name,
            )


def common_metadata(networks: Iterable[models.StateDict]) -> dict[str, str]:
    """Return the metadata that all networks share; mark it site-only if any network is."""
    shared: dict[str, str] | None = None
    marks: dict[str, str] = {}
    for network in networks:
        metadata = network.metadata
        if SITE_ONLY.items() <= metadata.items():
            marks = dict(SITE_ONLY)
        shared = {
            key: value
            for key, value in (metadata if shared is None else shared).items()
            if metadata.get(key) == value
        }
    return dict(sorted({**(shared or {}), **marks}.items()))


def _describe(info: models.TensorInfo | None) -> str:
    if info is None:
        return "absent"
    return f"{info.dtype} [{', '.join(str(size) for size in info.shape)}]"


Site = SubModel[models.StateDict | models.NetworkContribution]

_BLOCK_NUMBERS = 1 << 17
_LEAST_BLOCK = 1 << 12
"""Fewest numbers of a site to read at a time: for fewer, the overhead exceeds the reading."""
_COUNTER = "num_batches_tracked"
"""BatchNorm's counter of batches: it differs between sites, and hardly any network reads it."""


@dataclass(frozen=True, eq=False)
class Updates:
    """The networks or contributions of the sites, in the order of sums."""

    base: SubModel[models.StateDict] | None
    """The network to which the sites contribute; None if they give whole networks."""
    sites: tuple[Site, ...]
    """Networks or contributions with equal entries."""

    @property
    def infos(self) -> Mapping[str, models.TensorInfo]:
        """Types and shapes of the entries."""
        return network_of(self.sites[0]).infos if self.base is None else self.base.model.infos

    @property
    def float_names(self) -> list[str]:
        """Names of the floating-point entries, which are computed."""
        return [name for name, info in self.infos.items() if info.dtype in FLOAT_DTYPES]

    @property
    def metadata(self) -> Mapping[str, str]:
        """Metadata of the result: the base's, or those that all networks share."""
        if self.base is not None:
            return self.base.model.metadata
        return common_metadata(network_of(site) for site in self.sites)

    def blocks(self, name: str) -> Iterator[slice]:
        """Yield parts of an entry, flattened, that are small for all sites together."""
        size = math.prod(self.infos[name].shape)
        # One more than the sites, for the base.
        step = max(_LEAST_BLOCK, _BLOCK_NUMBERS // (len(self.sites) + 1))
        return (slice(first, min(first + step, size)) for first in range(0, size, step))

    def origin(self, name: str, block: slice) -> models.Float64 | None:
        """Return a block of the base, or None without one."""
        return None if self.base is None else read_block(self.base.model, name, block)

    def rows(self, name: str, block: slice) -> models.Float64:
        """Return the sites' differences from the base, or their values if there is no base.

        Returns
        -------
        float64, shape (sites, numbers)
        """
        origin = self.origin(name, block)
        rows: models.Float64 = np.empty((len(self.sites), block.stop - block.start))
        for number, site in enumerate(self.sites):
            rows[number] = read_block(network_of(site), name, block)
            if origin is not None and not holds_differences(site):
                with np.errstate(invalid="ignore"):
                    rows[number] -= origin
        return rows


def network_of(site: Site) -> models.StateDict:
    """Return the entries that a site gives."""
    model = site.model
    return model.network if isinstance(model, models.NetworkContribution) else model


def holds_differences(site: Site) -> bool:
    """Return whether a site gives differences from the base, not values."""
    return isinstance(site.model, models.NetworkContribution) and site.model.holds == "differences"


def read_block(network: models.StateDict, name: str, block: slice) -> models.Float64:
    """Return a part of an entry, flattened, in float64."""
    return network.tensors[name].reshape(-1)[block].astype(np.float64)


def collect_updates(sub_models: SubModels[models.MergeInput], method: str) -> Updates:
    """Return the inputs of a method as updates."""
    known: SubModels[models.StateDict | models.NetworkContribution] = sub_models.narrow(
        models.StateDict, models.NetworkContribution
    )
    contributions = [
        item for item in known.in_given_order if isinstance(item.model, models.NetworkContribution)
    ]
    if not contributions:
        networks = [(item.name, network_of(item)) for item in known.in_given_order]
        require_same_architecture(networks)
        for name, network in networks[1:]:
            require_same_entries(networks[0][0], networks[0][1].infos, name, network.infos)
        return Updates(None, known.in_sum_order)
    # A contribution fits one base only, so a network among the contributions must be that base.
    base = require_base(known, method)
    for item in contributions:
        if item.model.base_digest != base.digest:  # type: ignore[union-attr]
            raise errors.IncompatibleModelsError(
                "base",
                base.digest[:16],
                item.model.base_digest[:16],  # type: ignore[union-attr]
                first_name=base.name,
                other_name=f"the base of {item.name}",
                hint="give the network that the site trained from",
            )
        require_same_entries(base.name, base.model.infos, item.name, network_of(item).infos)
    sites = tuple(
        item for item in known.in_sum_order if isinstance(item.model, models.NetworkContribution)
    )
    return Updates(base, sites)


def require_base(sub_models: SubModels[Any], method: str) -> SubModel[models.StateDict]:
    """Return the only network, to which the other inputs belong."""
    networks = [
        item for item in sub_models.in_given_order if isinstance(item.model, models.StateDict)
    ]
    if len(networks) != 1:
        raise errors.IncompatibleModelsError(
            "number of networks",
            "1, the base",
            f"{len(networks)}",
            first_name=f"{method} with contributions",
            other_name=", ".join(item.name for item in networks) or "the inputs",
            hint="give the base once, and each site's training as a contribution"
            if networks
            else "also give the network to which the sites contributed",
        )
    return networks[0]


def head_entries(infos: Mapping[str, models.TensorInfo]) -> tuple[str, ...]:
    """Return the names of the entries of a network's last layer, its weight first.

    It is the layer with the fewest outputs: an answer (yaw and pitch, or one map) has fewer
    numbers than any layer before it. A site has no say in it.
    """
    outputs = {
        name: info.shape[0]
        for name, info in infos.items()
        if name.endswith(".weight") and len(info.shape) > 1 and info.dtype in FLOAT_DTYPES
    }
    smallest = [name for name, count in outputs.items() if count == min(outputs.values())]
    if len(smallest) != 1:
        raise errors.IncompatibleModelsError(
            "last layer",
            "one layer with the fewest outputs",
            ", ".join(smallest) or "none",
            first_name="a network with a head",
            other_name="the base",
            hint="hold the rounds with fedavg or fedper",
        )
    layer = smallest[0].removesuffix("weight")
    others = (name for name in infos if name.startswith(layer) and name != smallest[0])
    return smallest[0], *sorted(others)


def split_state(
    sub_models: SubModels[models.MergeInput],
) -> tuple[SubModels[models.MergeInput], SubModel[models.OptimiserState] | None]:
    """Return the inputs without the optimiser's state, and that state."""
    states = [
        item for item in sub_models.in_given_order if isinstance(item.model, models.OptimiserState)
    ]
    if len(states) > 1:
        raise errors.IncompatibleModelsError(
            "number of optimiser states",
            "at most 1",
            f"{len(states)}",
            first_name="a round",
            other_name=", ".join(item.name for item in states),
        )

    def others(
        items: tuple[SubModel[models.MergeInput], ...],
    ) -> tuple[SubModel[models.MergeInput], ...]:
        return tuple(item for item in items if not isinstance(item.model, models.OptimiserState))

    rest = replace(
        sub_models,
        in_given_order=others(sub_models.in_given_order),
        in_sum_order=others(sub_models.in_sum_order),
    )
    return rest, states[0] if states else None  # type: ignore[return-value]


def stream_network(
    updates: Updates,
    combine: Callable[[str, slice, models.Float64], models.Float64],
    pick: Callable[[str], NDArray[np.generic]],
) -> models.StateDict:
    """Return the network made of the base, if any, plus a function of the updates.

    `combine`: Called with an entry's name, a block, and the updates (sites, numbers); returns
    (numbers,). `pick`: Returns an entry that is not floating-point, from its name.
    """

    def compute(name: str) -> NDArray[np.generic]:
        info = updates.infos[name]
        if info.dtype not in FLOAT_DTYPES:
            return pick(name)
        entry = np.empty(info.shape, dtype=numpy_type(info.dtype))
        flat = entry.reshape(-1)
        for block in updates.blocks(name):
            result = combine(name, block, updates.rows(name, block))
            origin = updates.origin(name, block)
            with np.errstate(over="ignore"):  # refused below
                flat[block] = result if origin is None else origin + result
            if origin is not None:
                _require_finite(name, origin, flat[block])
        return entry

    return models.StateDict(
        ComputedTensors(updates.infos, compute), dict(updates.infos), dict(updates.metadata)
    )


def _require_finite(name: str, origin: models.Float64, result: NDArray[Any]) -> None:
    """Raise `IncompatibleModelsError` where a base's finite number would become NaN or infinite.

    Such a result is useless, and every later round on it as well. A base may hold infinities
    itself, in masks.
    """
    if bool((~np.isfinite(result) & np.isfinite(origin)).any()):
        raise errors.IncompatibleModelsError(
            f"entry {name!r} of the result",
            "finite numbers",
            "infinities or NaN",
            first_name="a usable network",
            other_name="the combined contributions",
            hint="their training diverged, or the server's learning rate (eta) is too high",
        )


def update_norms(updates: Updates) -> models.Float64:
    """Return the Euclidean norm of each update, over all floating-point entries."""
    squares: models.Float64 = np.zeros(len(updates.sites))
    for name in updates.float_names:
        for block in updates.blocks(name):
            rows = updates.rows(name, block)
            # Beyond the range of float64 a norm is infinite, and the update counts as zero.
            with np.errstate(over="ignore"):
                squares += (rows * rows).sum(axis=1)
    return np.sqrt(squares)


LONE_MOVER = 0.8
"""Share of the weighted changes from which one site is reported as the lone mover."""


def warn_of_lone_mover(updates: Updates, weights: models.Float64) -> tuple[str, ...]:
    """Return a warning if nearly all that moves the base comes from one of several sites.

    Parameters
    ----------
    weights : float64, shape (sites,)
        The weights of the mean.
    """
    if updates.base is None or sum(site.copies for site in updates.sites) < 2:
        return ()
    moved = weights * update_norms(updates)
    total = moved.sum()
    if not np.isfinite(total) or total == 0 or moved.max() < LONE_MOVER * total:
        return ()
    name, share = updates.sites[int(moved.argmax())].name, moved.max() / total
    return (
        f"{share:.0%} of the change to the base comes from {name} alone: the result is nearly its "
        "own network, and shows all that it learned",
    )


def numpy_type(dtype: str) -> type[np.generic]:
    """Return the type of a floating-point entry in memory; bfloat16 is read as float32."""
    special: dict[str, type[np.generic]] = {"F64": np.float64, "F16": np.float16}
    return special.get(dtype, np.float32)


class ComputedTensors(Mapping[str, NDArray[np.generic]]):
    """Entries that are computed, or loaded, when read."""

    def __init__(
        self, names: Mapping[str, models.TensorInfo], compute: Callable[[str], NDArray[np.generic]]
    ) -> None:
        self._names, self._compute = names, compute

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __getitem__(self, name: str) -> NDArray[np.generic]:
        if name not in self._names:
            raise KeyError(name)
        return self._compute(name)


class PackedMasks(Mapping[str, NDArray[np.bool_]]):
    """Masks of entries, a bit for each number, the highest first; unpacked when read."""

    def __init__(
        self, entries: Mapping[str, models.TensorInfo], packed: Callable[[str], NDArray[np.uint8]]
    ) -> None:
        self._entries, self._packed = entries, packed

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, name: object) -> bool:
        # Without unpacking the mask, as a mapping's own test would.
        return name in self._entries

    def __getitem__(self, name: str) -> NDArray[np.bool_]:
        shape = self._entries[name].shape
        return self.part(name, slice(0, math.prod(shape))).reshape(shape)

    def part(self, name: str, block: slice) -> NDArray[np.bool_]:
        """Return a part of a mask, flattened, without unpacking the rest."""
        first = block.start // 8
        bits = np.unpackbits(self._packed(name)[first : (block.stop + 7) // 8])
        return bits[block.start - 8 * first : block.stop - 8 * first].view(np.bool_)


def pick_first(updates: Updates) -> Callable[[str], NDArray[np.generic]]:
    """Return entries that are not floating-point as the site with the lowest digest has them."""
    return lambda name: network_of(updates.sites[0]).tensors[name]


def warn_of_differing_entries(updates: Updates) -> tuple[str, ...]:
    """Return a warning if sites differ in entries that are not floating-point, counters aside."""
    first = network_of(updates.sites[0])
    names = [
        name
        for name, info in first.infos.items()
        if info.dtype not in FLOAT_DTYPES
        and not name.endswith(_COUNTER)
        and not all(
            np.array_equal(network_of(site).tensors[name], first.tensors[name])
            for site in updates.sites[1:]
        )
    ]
    if not names:
        return ()
    listed = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    kept = updates.sites[0].name
    return (f"entries that are not floating-point differ; kept as in {kept}: {listed}",)
