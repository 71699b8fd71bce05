"""The personal part of a network: the numbers that a site keeps, and how methods choose them.

Before a round a site puts its own numbers into the round's network (`assemble`), and trains all of
it. It sends the differences of the numbers that it shares, and the mask of these; after training
it chooses the personal numbers of the next rounds (`next_part`). The personal part stays in
the workspace of the site: its file is marked as site-only, and uploads, bundles and the pool refuse
it by that mark. The mask shows the numbers that changed much at a site; this is not hidden.
Of methods that reply to each site (FedPAC), the last layer does leave it, and the reply replaces it
(`with_reply`).

Source: the FedCPF paper, algorithm 1; FedSelect and FedPer as `aggregators.methods.networks`
names them.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from aggregators.errors import AggregatorError, FormatError
from aggregators.formats import write_model
from aggregators.formats.registry import load_bytes
from aggregators.formats.safetensors_file import SITE_ONLY, TensorsFormat
from aggregators.methods.networks.replies import decode_reply
from aggregators.methods.networks.updates import FLOAT_DTYPES
from aggregators.methods.registry import METHODS
from aggregators.models import StateDict, TensorInfo
from site_agent.errors import InvalidInputError

Bits = NDArray[np.bool_]
Masks = Mapping[str, Bits]
"""By floating-point entry, in its shape: True where a number is personal."""


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
    """The site's score after the round, 0 to 1; NaN for methods that measure none."""
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


@dataclass(frozen=True)
class Choice:
    """The input from which a method chooses the personal numbers of the next round."""

    options: Any
    personal: Masks
    """Masks of the round just trained."""
    changes: Mapping[str, NDArray[Any]]
    """As `PersonalPart.changes`."""
    round_number: int
    seed: int
    """The seed of site and round."""


@dataclass(frozen=True)
class ClientHalf:
    """A site's half of a method with personal parts: one entry a method."""

    begins_with: Callable[[Mapping[str, tuple[int, ...]], frozenset[str]], dict[str, Bits]]
    """Takes names and shapes of the entries, and names of those of the head; returns the first
    masks."""
    choose: Callable[[Choice], dict[str, Bits]] | None = None
    """Returns the next masks."""
    counts_from: Callable[[Any, int], bool] | None = None
    """Takes options and a round's number; returns whether counting of changes restarts with this
    round. Without it, changes are not counted."""
    scores_at_home: bool = False
    """Measure the site's score on samples kept out of training; counting of changes restarts when
    the score reaches a step."""
    takes_replies: bool = False
    """Send the personal part, too, with statistics of classes; a reply replaces it
    (`with_reply`)."""


def _nothing(shapes: Mapping[str, tuple[int, ...]], _head: frozenset[str]) -> dict[str, Bits]:
    return {name: np.zeros(shape, dtype=np.bool_) for name, shape in shapes.items()}


def _all(shapes: Mapping[str, tuple[int, ...]], _head: frozenset[str]) -> dict[str, Bits]:
    return {name: np.ones(shape, dtype=np.bool_) for name, shape in shapes.items()}


def _head(shapes: Mapping[str, tuple[int, ...]], head: frozenset[str]) -> dict[str, Bits]:
    return {name: np.full(shape, name in head) for name, shape in shapes.items()}


def _most_changed(choice: Choice) -> dict[str, Bits]:
    """Add those of all remaining numbers that have changed most, up to ``rho``."""
    return _add_largest(choice, choice.changes)


def _at_random(choice: Choice) -> dict[str, Bits]:
    generator = np.random.default_rng(choice.seed)
    drawn = {name: generator.random(mask.shape) for name, mask in choice.personal.items()}
    return _add_largest(choice, drawn)


def _add_largest(choice: Choice, by: Mapping[str, NDArray[Any]]) -> dict[str, Bits]:
    names = list(choice.personal)
    before = np.concatenate([choice.personal[name].reshape(-1) for name in names])
    room = math.floor(choice.options.rho * before.size + 1e-9) - int(before.sum())
    count = min(math.floor(choice.options.grow * before.size + 1e-9), room)
    ranks = np.concatenate([by[name].reshape(-1) for name in names])
    after = _with_largest(before, ranks, count)
    ends = np.cumsum([choice.personal[name].size for name in names])
    parts = np.split(after, ends[:-1])
    return {
        name: part.reshape(choice.personal[name].shape)
        for name, part in zip(names, parts, strict=True)
    }


def _each_entry(choice: Choice) -> dict[str, Bits]:
    """Add a share of each entry's rest, every few rounds, while that keeps below ``rho``."""
    options = choice.options
    if choice.round_number % options.every:
        return dict(choice.personal)
    chosen = {}
    for name, mask in choice.personal.items():
        room = math.floor(options.rho * mask.size + 1e-9) - int(mask.sum())
        count = min(math.floor(options.grow * int((~mask).sum()) + 1e-9), room)
        ranks = choice.changes[name].reshape(-1)
        chosen[name] = _with_largest(mask.reshape(-1), ranks, count).reshape(mask.shape)
    return chosen


def _with_largest(mask: Bits, ranks: NDArray[Any], count: int) -> Bits:
    """Return a flat mask and the `count` largest of the others; of equal ones, the first."""
    if count <= 0:
        return mask
    rest = np.flatnonzero(~mask)
    order = np.argsort(-ranks[rest], kind="stable")[:count]
    after = mask.copy()
    after[rest[order]] = True
    return after


CLIENT_HALVES: Mapping[str, ClientHalf] = {
    "local": ClientHalf(_all),
    "fedper": ClientHalf(_head),
    "fedpac": ClientHalf(_head, takes_replies=True),
    "fedselect": ClientHalf(
        _nothing, _each_entry, lambda options, number: (number - 1) % options.every == 0
    ),
    "fedcpf": ClientHalf(
        _nothing, _most_changed, lambda _options, _number: False, scores_at_home=True
    ),
    "cpf-random": ClientHalf(_nothing, _at_random),
}
"""By the name of the method; the others keep nothing at home."""


def find_half(method: str) -> ClientHalf | None:
    """Return a site's half of a method, or None where the site keeps nothing."""
    half = CLIENT_HALVES.get(method)
    assert (half is not None) == METHODS[method].personal, method
    return half


def next_part(
    half: ClientHalf,
    options: Any,
    *,
    method: str,
    site: str,
    base_digest: str,
    round_number: int,
    before: PersonalPart | None,
    personal: Masks,
    start: StateDict,
    trained: StateDict,
    score: float,
    seed: int,
) -> PersonalPart:
    """Return a site's personal part after a round's training.

    `before`: As the site's last round has left it. `personal`: The masks of this round. `start`,
    `trained`: The network before and after training. `score`: At the site, 0 to 1. `seed`: Of
    random choices.
    """
    step = 1 if before is None else before.step
    changes: dict[str, NDArray[Any]] = {}
    if half.counts_from is not None:
        restarts = before is None or half.counts_from(options, round_number)
        # FedCPF restarts counting changes whenever the site has become better by a step. The number
        # of rounds by which the paper divides them does not alter their order.
        while half.scores_at_home and score >= step * options.acc:
            step, restarts = step + 1, True
        for name, mask in personal.items():
            moved = np.subtract(trained.tensors[name], start.tensors[name], dtype=np.float32)
            changes[name] = np.abs(moved) * ~mask
            if not restarts and before is not None:
                changes[name] += before.changes[name]
    chosen = personal
    if half.choose is not None:
        chosen = half.choose(Choice(options, personal, changes, round_number, seed))
    values = {
        name: np.where(mask, trained.tensors[name], 0).astype(np.float32)
        for name, mask in personal.items()
    }
    return PersonalPart(
        method, site, base_digest, round_number, values, personal, chosen, changes, step, score,
        None if before is None else before.prototypes,
    )  # fmt: skip


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
