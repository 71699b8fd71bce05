"""A site's ledger of the bases to which it has contributed, in all kinds of rounds.

Two sums over nearly the same base, with a lab in one of them alone, differ by this lab's update. So
a site contributes once to a *neighbourhood* of weights, or again with the same sites. Weights are
compared tensor by tensor, by projections from a secret of the site (a count sketch; Charikar et al.
2002), by angles, as a factor changes nothing in networks with ReLU.

The base of a later round may have moved from the last one that the site saw no further than
updates of bounded norm move it (`most_step`), so that a pool or server cannot put any network in
place of the result.

Rounds with differential privacy need neither: their noise bounds each release, and their own ledger
counts them (`site_agent.federated.private_training`).
"""

import base64
import hashlib
import math
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from aggregators.methods.registry import find_method
from aggregators.methods.round_options import RoundOptions
from aggregators.models import StateDict
from aggregators.whole_file import write_whole
from site_agent.errors import ContributionWithheldError
from site_agent.work.ledger import Entry, Ledger

NEAR = 0.02
"""Angle between two bases' tensors, in radians, below which they are one: rounds move a network
by 0.04 at first, and by about 0.01 later (gaze-lenet, default options)."""

MOST_NETWORKS = 5
"""Of one live round: it is held again, with another network, where the server lost a block."""

_BUCKETS = 64
_SLACK = 1.3
"""The norm of a difference is estimated within 10 %."""

_MOST_SITES = 200


@dataclass(frozen=True)
class RoundOfSeries:
    """The identity of a round for the ledger."""

    name: str
    """For messages."""
    series: str
    number: int
    """From 1."""
    site: str
    """The site itself."""
    sites: tuple[str, ...]
    """The announced sites, sorted, or the federation of live rounds."""
    most_step: float
    """Largest distance that a round moves a network, as a share of its norm."""
    most_networks: int = 1
    """Networks that a site trains in this round."""


class ContributionLedger:
    """The bases of all contributions of a machine's sites; see the module.

    `folder`: ``contributions.jsonl`` in it has one line a base, ``secret`` the site's secret.
    """

    def __init__(self, folder: Path) -> None:
        self._ledger, self._key = Ledger(folder / "contributions.jsonl"), folder / "secret"

    def order_seed(self, site: str, round_: str, base_digest: str) -> int:
        """Return the seed of the order of samples in a round, which nobody else can compute."""
        with self._ledger.at_work():
            text = f"order|{site}|{round_}|{base_digest}".encode()
            return int.from_bytes(self._digest(text)[:8], "big") >> 1

    def admit(
        self,
        round_: RoundOfSeries,
        base: StateDict,
        digest: str,
        first: Callable[[], StateDict] | None = None,
        *,
        record: bool = True,
    ) -> int:
        """Record that a base is trained, and return how many other sites must contribute, too.

        `first`: Reads the base of the series' first round, where the site knows it. `record`: False
        to look only.

        Raises `ContributionWithheldError`: the base is too far from the last one of its series, or
        near to one that was trained with other sites.
        """
        shapes = hashlib.sha256(repr(sorted(base.infos.items())).encode()).hexdigest()[:16]
        with self._ledger.at_work():
            # Processes that draw the secret at the same time would each begin with another one.
            sketch = self._sketch(base)
            known = self._ledger.find("base", site=round_.site, shapes=shapes)
            series = [entry for entry in known if entry["series"] == round_.series]
            again = [entry["digest"] for entry in series if entry["number"] == round_.number]
            if digest not in again and len(again) >= round_.most_networks:
                raise ContributionWithheldError(
                    round_.name,
                    [
                        f"this site has trained {len(again)} other networks in this round, the "
                        f"last one sha256:{again[-1]}, and is asked to train sha256:{digest} now"
                    ],
                )
            self._require_near_last(round_, series, sketch, first)
            elsewhere = [entry for entry in known if entry["series"] != round_.series]
            others = self._require_first(round_, elsewhere, base, sketch)
            if record and digest not in again:
                self._ledger.append(
                    {
                        "kind": "base",
                        "site": round_.site,
                        "sites": list(round_.sites),
                        "series": round_.series,
                        "number": round_.number,
                        "digest": digest,
                        "shapes": shapes,
                        "sketch": base64.b64encode(sketch.tobytes()).decode(),
                    }
                )
            return others

    def _require_near_last(
        self,
        round_: RoundOfSeries,
        series: list[Entry],
        sketch: NDArray[np.float32],
        first: Callable[[], StateDict] | None,
    ) -> None:
        if round_.number == 1:
            return
        earlier = [entry for entry in series if entry["number"] < round_.number]
        if earlier:
            entry = max(earlier, key=lambda item: int(item["number"]))
            number, last = int(entry["number"]), _read(entry)
        elif first is not None:
            number, last = 1, self._sketch(first())
        else:
            raise ContributionWithheldError(
                round_.name,
                ["this site knows no network of an earlier round, to compare this one with"],
                hint="name the file of the first network, not its digest alone",
            )
        moved = float(np.linalg.norm(sketch - last) / max(float(np.linalg.norm(last)), 1e-12))
        allowed = _SLACK * ((1 + round_.most_step) ** (round_.number - number) - 1)
        if moved > allowed:
            raise ContributionWithheldError(
                round_.name,
                [
                    f"its base has moved by {moved:.0%} of its norm since round {number}, and the "
                    f"updates of all sites together move it by at most {allowed:.0%}: it is not "
                    "their result"
                ],
                hint="ask how it was made, and take part in no further round of this series",
            )

    def _require_first(
        self,
        round_: RoundOfSeries,
        others: list[Entry],
        base: StateDict,
        sketch: NDArray[np.float32],
    ) -> int:
        weights = np.array([math.prod(base.infos[name].shape) for name in _compared(base)])
        needed = 0
        for entry in others:
            if weights[_angles(sketch, _read(entry)) < NEAR].sum() <= weights.sum() / 2:
                continue
            if entry["sites"] != list(round_.sites):
                raise ContributionWithheldError(
                    round_.name,
                    [
                        "this site has contributed to nearly the same network already, with other "
                        f"sites ({', '.join(entry['sites'])}): the difference of the two results "
                        "would show the update of a site that is in one of them alone"
                    ],
                    hint="hold the round from another network, with the same sites, or with "
                    "differential privacy",
                )
            needed = len(round_.sites) - 1
        return needed

    def _sketch(self, base: StateDict) -> NDArray[np.float32]:
        """Return the secret projections of each tensor: shape (tensors, buckets)."""
        rows = []
        for name in _compared(base):
            values = np.asarray(base.tensors[name], dtype=np.float64).reshape(-1)
            key = int.from_bytes(self._digest(f"projection|{name}".encode())[:16], "big")
            # Raw numbers: their stream stays the same in all versions of NumPy.
            drawn = np.random.Philox(key=key).random_raw(len(values)) % (2 * _BUCKETS)
            signs = np.where(drawn % 2 == 0, 1.0, -1.0)
            rows.append(np.bincount(drawn // 2, weights=signs * values, minlength=_BUCKETS))
        return np.array(rows, dtype=np.float32)

    def _digest(self, text: bytes) -> bytes:
        if not self._key.is_file():
            write_whole(self._key, secrets.token_hex(32), mode=0o600)
        return hashlib.sha256(self._key.read_bytes() + text).digest()


def norm_of(network: StateDict) -> float:
    """Return the Euclidean norm over all floating-point entries."""
    names = [name for name, info in network.infos.items() if info.dtype.startswith("F")]
    squares = (np.square(network.tensors[name].astype(np.float64)).sum() for name in names)
    return math.sqrt(sum(squares))


def most_step(method: str, options: RoundOptions) -> float:
    """Return the largest distance that a round moves a network, as a share of its norm."""
    change, merging = options.training.most_change, options.merging.model_dump()
    if "beta1" in merging:
        # By Cauchy and Schwarz, as m and v are sums over the same updates; sqrt(2) is for Yogi.
        beta1, beta2 = merging["beta1"], merging.get("beta2", 0.99)
        spread = (1 - beta2) * (1 - beta1**2 / beta2)
        ratio = math.sqrt(2) * (1 - beta1) / math.sqrt(spread) if spread > 0 else math.inf
        # eta is in root mean squares of the first update, which is no longer than any.
        longest = min(ratio, 1 / merging["tau"] if merging["tau"] else math.inf)
        return float(change * (1 + merging["eta"] * longest))
    if "beta" in merging:
        return float(change * merging["eta"] / (1 - merging["beta"]))
    if find_method(method).personal:
        # Each number is a mean over the sites that share it.
        return float(change * math.sqrt(_MOST_SITES))
    # A median of each number can be longer than the updates.
    return float(change * (math.sqrt(2) if find_method(method).needs_each else 1.0))


def _compared(base: StateDict) -> list[str]:
    return [
        name
        for name, info in sorted(base.infos.items())
        if info.dtype.startswith("F") and len(info.shape) > 1
    ]


def _angles(one: NDArray[np.float32], other: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the angle of each row to the other one's, for small angles."""
    ends = [rows / np.linalg.norm(rows, axis=1, keepdims=True).clip(1e-30) for rows in (one, other)]
    apart: NDArray[np.float64] = np.linalg.norm(ends[0] - ends[1], axis=1).astype(np.float64)
    return apart


def _read(entry: Entry) -> NDArray[np.float32]:
    content = np.frombuffer(base64.b64decode(entry["sketch"]), dtype=np.float32)
    return content.reshape(-1, _BUCKETS)
