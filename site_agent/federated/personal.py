"""The personal part of a network: the numbers that a site keeps, and their files.

Before a round a site puts its own numbers into the round's network (`assemble`), and trains all of
it; `site_agent.federated.halves` chooses the numbers. The personal part stays in the workspace of
the site: its file is marked as site-only, and uploads, exports and the pool refuse it by that mark.
Of methods that reply to each site (FedPAC), the last layer does leave it, and the reply replaces it
(`with_reply`).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from aggregators.errors import AggregatorError, FormatError
from aggregators.formats import write_model
from aggregators.formats.registry import load_bytes
from aggregators.formats.safetensors_file import SITE_ONLY, TensorsFormat
from aggregators.methods.networks.replies import decode_reply
from aggregators.methods.networks.updates import FLOAT_DTYPES
from aggregators.models import StateDict, TensorInfo
from site_agent.errors import InvalidInputError

Bits = NDArray[np.bool_]
Masks = Mapping[str, Bits]
"""By floating-point entry, in its shape: True where a number is personal."""


class PartStore(Protocol):
    """The personal parts of sites in one series of rounds."""

    def before(self, site: str, round_number: int, /) -> "PersonalPart | None":
        """Return a site's personal part from its last round before this one, if any."""

    def keep(self, part: "PersonalPart", /) -> None:
        """Keep the part that a site's training made."""

    def take_reply(self, site: str, round_number: int, reply: bytes, /) -> None:
        """Put the reply to a site's contribution in its part of that round; again is no harm."""


class MemoryParts(dict[str, "PersonalPart"]):
    """The newest personal part of each site, in memory; a `PartStore`."""

    def before(self, site: str, _round_number: int, /) -> "PersonalPart | None":
        """Return a site's personal part, if any."""
        return self.get(site)

    def keep(self, part: "PersonalPart", /) -> None:
        """Keep the part that a site's training made."""
        self[part.site] = part

    def take_reply(self, site: str, _round_number: int, reply: bytes, /) -> None:
        """Put the reply to a site's contribution in its part."""
        self[site] = with_reply(self[site], reply)


@dataclass(frozen=True)
class PersonalStore:
    """The personal parts of the sites of one series of rounds: ``<site>/<round>.safetensors``.

    A series is named by its first round on a pool, or by the digest of a live run. The two
    newest parts of a site stay, as the last round may be held again.
    """

    folder: Path

    def path(self, site: str, round_number: int) -> Path:
        """Return the file of a part."""
        return self.folder / quote(site, safe="") / f"{round_number:04}.safetensors"

    def before(self, site: str, round_number: int) -> "PersonalPart | None":
        """Return a site's personal part from its last round before this one, if any."""
        known = [path for path in self._files(site) if int(path.stem) < round_number]
        return read_part(known[-1]) if known else None

    def newest(self, site: str) -> "PersonalPart | None":
        """Return a site's personal part, if any."""
        files = self._files(site)
        return read_part(files[-1]) if files else None

    def keep(self, part: "PersonalPart") -> None:
        """Write a part, for the owner of the folder alone."""
        path = self.path(part.site, part.round_number)
        write_part(part, path)
        for folder in (self.folder, path.parent):
            folder.chmod(0o700)
        for old in self._files(part.site)[:-2]:
            old.unlink()

    def take_reply(self, site: str, round_number: int, reply: bytes) -> None:
        """Put the reply to a site's contribution in its part of that round; again is no harm."""
        path = self.path(site, round_number)
        write_part(with_reply(read_part(path), reply), path)

    def _files(self, site: str) -> list[Path]:
        return sorted(self.path(site, 0).parent.glob("*.safetensors"))


def newest_parts(folder: Path) -> dict[str, list[Path]]:
    """Return the newest part of each site, by series."""
    paths: dict[str, list[Path]] = {}
    for site in sorted(folder.glob("*/*")):
        if files := sorted(site.glob("*.safetensors")):
            paths.setdefault(site.parent.name, []).append(files[-1])
    return paths


PERSONAL_PART = "poolctl-personal-part"


@dataclass(frozen=True, eq=False)
class PersonalPart:
    """The numbers that a site keeps after a round."""

    method: str
    site: str
    base_digest: str
    """SHA-256 of the network of the round that it was made in."""
    round_number: int
    values: Mapping[str, NDArray[Any]]
    """The site's own numbers; zeros where `personal` is False."""
    personal: Masks
    """Masks of the numbers that were personal in that round."""
    chosen: Masks
    """Masks of the personal numbers from the next round on; all of `personal` among them."""
    changes: Mapping[str, NDArray[Any]]
    """Change of each number since counting last restarted; empty for methods that do not choose by
    changes."""
    step: int = 1
    """For FedCPF: the next score at which counting restarts, in units of ``acc``."""
    score: float = math.nan
    """The site's score after the round, at most 1; NaN where none was measured."""
    prototypes: NDArray[np.float32] | None = None
    """Shape (classes, features), from the last reply; NaN for classes without. None for methods
    without replies."""

    @property
    def share(self) -> float:
        """Share of the numbers that are personal from the next round on."""
        return float(share_of(self.chosen))


def site_only(network: StateDict) -> StateDict:
    """Return a network marked as one that stays at its site."""
    metadata = {**network.metadata, **SITE_ONLY}
    return StateDict(network.tensors, network.infos, metadata)


def share_of(masks: Masks) -> float:
    """Return the share of True among all numbers."""
    total = sum(mask.size for mask in masks.values())
    return sum(int(mask.sum()) for mask in masks.values()) / max(1, total)


def overlap_of(one: Masks, other: Masks) -> float:
    """Return the intersection of two masks over their union; 1 where both are empty."""
    both = sum(int((one[name] & other[name]).sum()) for name in one)
    either = sum(int((one[name] | other[name]).sum()) for name in one)
    return both / either if either else 1.0


def assemble(network: StateDict, part: PersonalPart | None) -> StateDict:
    """Return a round's network with a site's personal numbers in it."""
    if part is None or not any(mask.any() for mask in part.personal.values()):
        return network
    tensors = dict(network.tensors)
    for name, mask in part.personal.items():
        info = network.infos.get(name)
        if info is None or tuple(info.shape) != mask.shape:
            raise InvalidInputError(
                f"the personal part of {part.site!r} has {name!r} of shape {list(mask.shape)}, the "
                f"network {'none' if info is None else list(info.shape)}"
            )
        kept_values = part.values[name].astype(tensors[name].dtype)
        tensors[name] = np.where(mask, kept_values, tensors[name])
    return StateDict(tensors, dict(network.infos), dict(network.metadata))


def with_reply(part: PersonalPart, reply: bytes) -> PersonalPart:
    """Return a site's personal part with the reply to its contribution: the mixed head."""
    infos = {name: TensorInfo("F32", mask.shape) for name, mask in part.personal.items()}
    try:
        tensors = decode_reply(reply, infos)
    except AggregatorError as error:
        raise InvalidInputError(
            f"the reply to {part.site!r} in round {part.round_number} cannot be used: {error}"
        ) from error
    return replace(part, values={**part.values, **tensors.head}, prototypes=tensors.prototypes)


_PROTOTYPES = "prototypes"


def trained_shapes(network: StateDict) -> dict[str, tuple[int, ...]]:
    """Return the floating-point entries of a network, with their shapes."""
    return {
        name: tuple(info.shape)
        for name, info in network.infos.items()
        if info.dtype in FLOAT_DTYPES
    }


def write_part(part: PersonalPart, path: Path) -> str:
    """Write a personal part, whole or not at all, for its owner alone; return its SHA-256."""
    tensors: dict[str, NDArray[Any]] = {}
    for name, mask in part.personal.items():
        tensors[f"value/{name}"] = part.values[name]
        tensors[f"personal/{name}"] = mask.astype(np.uint8)
        tensors[f"chosen/{name}"] = part.chosen[name].astype(np.uint8)
        if part.changes:
            tensors[f"change/{name}"] = part.changes[name].astype(np.float32)
    if part.prototypes is not None:
        tensors[_PROTOTYPES] = part.prototypes
    kinds = {"uint8": "U8", "float32": "F32"}
    infos = {
        name: TensorInfo(kinds[str(values.dtype)], values.shape) for name, values in tensors.items()
    }
    metadata = {
        "format": PERSONAL_PART, **SITE_ONLY, "method": part.method, "site": part.site,
        "base": part.base_digest, "round": str(part.round_number), "step": str(part.step),
        "score": repr(part.score),
    }  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    digest = write_model(StateDict(tensors, infos, metadata), path, format_name="safetensors")
    path.chmod(0o600)
    return digest


def read_part(path: Path) -> PersonalPart:
    """Read a personal part."""
    try:
        with path.open("rb") as file:
            content = TensorsFormat().decode(load_bytes(file))
    except (OSError, FormatError) as error:
        raise InvalidInputError(f"{path}: cannot be read as a personal part: {error}") from error
    metadata = content.metadata
    if metadata.get("format") != PERSONAL_PART:
        raise InvalidInputError(
            f"{path}: is no personal part of a network; 'poolctl personal ls' lists them"
        )

    def entries(kind: str) -> dict[str, NDArray[Any]]:
        return {
            name.removeprefix(kind): np.array(content.tensors[name])
            for name in content.infos
            if name.startswith(kind)
        }

    try:
        return PersonalPart(
            method=metadata["method"],
            site=metadata["site"],
            base_digest=metadata["base"],
            round_number=int(metadata["round"]),
            values=entries("value/"),
            personal={name: bits.astype(np.bool_) for name, bits in entries("personal/").items()},
            chosen={name: bits.astype(np.bool_) for name, bits in entries("chosen/").items()},
            changes=entries("change/"),
            step=int(metadata["step"]),
            score=float(metadata["score"]),
            prototypes=entries(_PROTOTYPES).get(""),
        )
    except (KeyError, ValueError) as error:
        raise InvalidInputError(f"{path}: is a damaged personal part: {error}") from error
