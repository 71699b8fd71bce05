"""The table of attacks: needs, score, and the meaning of the score.

A row runs on *cases*: the artifact, and a control that was made to leak. `Trial` renders rows as
the lines of a receipt. Rows are in the modules of the artifacts: `receipt.networks`,
`receipt.sub_models`, `receipt.leaf_sums` and `receipt.smashed_data`.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Generic, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from aggregators.errors import FormatError
from pool_server.wire.cards import AttackFinding
from pool_server.wire.evaluations import Score
from site_agent.attacks.separation import RESAMPLES, Float64, MemberScores, separation
from site_agent.errors import InvalidInputError, SiteAgentError
from site_agent.evaluation import bootstrap_intervals

GUESSING = 0.5
"""The AUC of an attack that knows nothing."""
_LONGEST_NOTE = 600
_NORMAL_95 = 1.959964
T = TypeVar("T")
CaseT = TypeVar("CaseT")
Reveals = Literal["", "membership", "persons", "pictures", "landmarks", "base"]


@dataclass(frozen=True)
class Share:
    """A count out of a total, such as pictures that were read."""

    count: float
    total: int


@dataclass(frozen=True, eq=False)
class MeanOverPersons:
    """A mean over samples; resampling persons gives its interval."""

    measure: Callable[[Float64], float]
    """From the count of each sample, float64 (n,), to the value."""
    persons: NDArray[np.str_]


Outcome = MemberScores | Share | MeanOverPersons | float
Scores = Mapping[str, Outcome]
"""By the name of a line of the receipt; empty where an attack does not apply."""


@dataclass(frozen=True, kw_only=True)
class Attack(Generic[CaseT]):
    """A row of the table."""

    name: str
    needs: str
    """The attacker's knowledge besides the artifact."""
    score: Callable[[CaseT], Scores]
    measure: str = "AUC"
    chance: float | Callable[[CaseT, str], float] | None = GUESSING
    """Score where nothing leaks, or its measurement for a line. None: a fact, and no attack."""
    control: Callable[[CaseT], CaseT] | None = None
    """Makes a case that leaks, from the artifact; None for facts."""
    reveals: Reveals = "membership"
    note: str | Callable[[CaseT, str], str] = ""

    def chance_of(self, case: CaseT, line: str) -> float | None:
        """Return the chance level of a line; None for facts."""
        return self.chance(case, line) if callable(self.chance) else self.chance

    def note_of(self, case: CaseT, line: str) -> str:
        """Return the note on a line."""
        return self.note(case, line) if callable(self.note) else self.note


class Trial(Generic[CaseT]):
    """Runs attacks on an artifact and on its controls; each control is made only once."""

    def __init__(self, artifact: CaseT, seed: int) -> None:
        self._artifact, self._seed = artifact, seed
        self._made: dict[Callable[[CaseT], CaseT], tuple[CaseT | None, str]] = {}

    def judge(self, attacks: Iterable[Attack[CaseT]]) -> Iterator[AttackFinding]:
        """Yield the lines of each row; a failed score makes a line that could not be judged."""
        for attack in attacks:
            scores, failure = attempt(partial(attack.score, self._artifact))
            if scores is None:
                yield AttackFinding(
                    name=attack.name, measure="none", found=Score(value=0.0), note=failure,
                    reveals=attack.reveals, needs=attack.needs,
                )  # fmt: skip
                continue
            controls, failure = self._score_control(attack) if scores else ({}, "")
            for name, outcome in scores.items():
                chance, unknown_chance = attempt(partial(attack.chance_of, self._artifact, name))
                note = attack.note_of(self._artifact, name)
                yield AttackFinding(
                    name=name, measure=attack.measure, found=score_of(outcome, self._seed),
                    chance=chance, reveals=attack.reveals, needs=attack.needs,
                    control=score_of(controls[name], self._seed) if name in controls else None,
                    note=(failure or unknown_chance or note)[:_LONGEST_NOTE],
                )  # fmt: skip

    def _score_control(self, attack: Attack[CaseT]) -> tuple[Scores, str]:
        if attack.control is None:
            return {}, ""
        if attack.control not in self._made:
            self._made[attack.control] = attempt(partial(attack.control, self._artifact))
        case, failure = self._made[attack.control]
        if case is None:
            return {}, failure
        scores, failure = attempt(partial(attack.score, case))
        return scores or {}, failure


def attempt(make: Callable[[], T]) -> tuple[T | None, str]:
    """Return a result, or the reason why there is none: a base may not be trainable."""
    try:
        return make(), ""
    except SiteAgentError as error:
        return None, f"could not be judged: {error}"[:_LONGEST_NOTE]


def read_sent(path: Path, read: Callable[[Path], T]) -> T:
    """Read a contribution, or say where contributions are.

    Raises `InvalidInputError`: the file is not a contribution, or is of another kind.
    """
    try:
        return read(path)
    except FormatError as error:
        raise InvalidInputError(
            f"{path}: not a contribution of this --mode: {error}",
            hint="contributions are kept in the folder 'rounds' of the cache ('poolctl env')",
        ) from error


def score_of(outcome: Outcome, seed: int = 0) -> Score:
    """Return an outcome with its 95 % interval; one that is not finite is left out."""
    if isinstance(outcome, MemberScores):
        return _auc_of(outcome, seed)
    if isinstance(outcome, Share):
        return _share_of(outcome)
    if isinstance(outcome, MeanOverPersons):
        return _mean_of(outcome, seed)
    return Score(value=outcome)


def _auc_of(scores: MemberScores, seed: int) -> Score:
    """Return the area under the ROC curve.

    Resampling whole persons says nothing where few samples are separated perfectly; the interval is
    at least as wide as Wilson's for a share of that number of samples.
    """
    member = scores.is_member
    auc = separation(scores.scores, member, groups=scores.persons, resamples=RESAMPLES, seed=seed)
    fewest = min(int(member.sum()), int((~member).sum()))
    least = _share_of(Share(auc.auc * fewest, fewest))
    low, high = auc.intervals.get("auc", (auc.auc, auc.auc))
    ends = np.nanmin([low, least.low or 0.0]), np.nanmax([high, least.high or 0.0])
    return Score(value=auc.auc, low=float(ends[0]), high=float(ends[1]))


def _share_of(share: Share) -> Score:
    """Return a share with Wilson's interval (1927)."""
    count, total = share.count, share.total
    if not total:
        return Score(value=0.0)
    value, z2 = count / total, _NORMAL_95**2
    centre = (value + z2 / (2 * total)) / (1 + z2 / total)
    half = _NORMAL_95 * math.sqrt(value * (1 - value) / total + z2 / (4 * total**2))
    half /= 1 + z2 / total
    low = centre - half if count else 0.0
    high = centre + half if count < total else 1.0
    return Score(value=value, low=low, high=high)


def _mean_of(mean: MeanOverPersons, seed: int) -> Score:
    _, group = np.unique(mean.persons, return_inverse=True)

    def drawn(times: NDArray[np.int64]) -> dict[str, float]:
        return {"value": mean.measure(times[group].astype(np.float64))}

    count = int(group.max()) + 1
    intervals = bootstrap_intervals(drawn, count, resamples=RESAMPLES, seed=seed)
    value, ends = mean.measure(np.ones(len(group))), intervals.get("value", (math.nan, math.nan))
    if not all(math.isfinite(end) for end in ends):
        return Score(value=value)
    return Score(value=value, low=ends[0], high=ends[1])
