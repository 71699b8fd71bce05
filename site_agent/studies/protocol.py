"""The protocol of the paper's tables II and IV: which models are made of the parts, and scored.

``P1`` is a model trained on one part, ``P1+P2`` on the union of two as if they lay in one place,
``Pall`` on all; ``COM(P1+P2)`` is merged from the models of two parts by the paper's method (MWMA
for detectors, WBA for landmark models). Beyond the paper: ``CASCADE`` is WBA in the form that any
program using dlib runs, ``REFINED`` that with leaves fitted again by all parts.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from aggregators.methods.refitting import RefitSettings
from site_agent.errors import InvalidInputError
from site_agent.evaluation.model_runs import EvaluationSettings
from site_agent.settings import Settings
from site_agent.studies.steps import SCORE_PREFIX, Contribute, Merge, Score, Step, Train
from site_agent.training.detector_plan import HogSvmSettings
from site_agent.training.ert import ErtSettings

StudyKind = Literal["landmarks", "detectors"]
Group = Literal["alone", "union", "all", "merged", "order", "weighted", "cascade", "refined"]

FEWEST_PARTS, MOST_PARTS = 2, 50
_MOST_SPELLED_OUT = 9
_BY_FACES = "by faces"


class CombinationSettings(Settings, error=InvalidInputError):
    """Settings of the combinations of parts."""

    unions: bool = True
    """Train on growing unions of parts, too (P1+P2, P1+P2+P3, ...), which takes longest."""
    orders: int = Field(default=2, ge=0, le=100)
    """Number of further orders, drawn at random, in which all parts are merged."""
    weights: tuple[Annotated[float, Field(gt=0)], ...] = ()
    """Merge all parts with these weights, too, one a part; 1.5 for the first and 1 for the others
    when left out, as in the paper's example."""
    double: int = Field(default=0, ge=0, le=MOST_PARTS)
    """Number of the part that is merged twice; 0: the last one, as in the paper."""


class RefinementSettings(Settings, error=InvalidInputError):
    """Settings of merging landmark models into a cascade, and of refining them."""

    step: float = Field(default=1.1, gt=0, le=2)
    """Factor on every update of the cascade."""
    rounds: int = Field(default=3, ge=0, le=100)
    """Rounds of refinement, each one exchange of all parts; 0: none."""
    starts: int = Field(default=20, ge=1, le=10_000)
    """Starting shapes for each face in refinement."""
    refit_nu: float | None = Field(default=None, gt=0, le=1)
    """Part of the error that each tree corrects in refinement; by the number of trees if absent."""
    min_faces: int = Field(default=5, ge=1)
    """Leaves that fewer faces of a part reach send nothing."""
    thin: int | None = Field(default=None, ge=1)
    """Trees a level of the thinned models; those of one part's model if absent."""


class StudySettings(Settings, error=InvalidInputError):
    """All settings of a study, besides its data."""

    training: ErtSettings | HogSvmSettings
    combination: CombinationSettings = Field(default_factory=CombinationSettings)
    refinement: RefinementSettings = Field(default_factory=RefinementSettings)
    """Of no meaning for detectors."""
    evaluation: EvaluationSettings = Field(default_factory=EvaluationSettings)
    seed: int = 0

    @property
    def kind(self) -> StudyKind:
        return "landmarks" if isinstance(self.training, ErtSettings) else "detectors"


@dataclass(frozen=True)
class Row:
    """One line of the study's table: a model and its scores."""

    key: str
    """Of the step that makes the model, and of its files."""
    name: str
    group: Group
    parts: int
    """How many parts' data went into the model."""

    @property
    def score_key(self) -> str:
        return SCORE_PREFIX + self.key


@dataclass(frozen=True)
class Protocol:
    """The lines of the table, and the steps that make them, each after those that it needs."""

    rows: tuple[Row, ...]
    steps: tuple[Step, ...]


def plan_protocol(
    parts: Sequence[str],
    faces: Sequence[int],
    settings: StudySettings,
    landmarks: Sequence[str] = (),
) -> Protocol:
    """Plan a study.

    `landmarks`: names of those that landmark models place.
    """
    if not FEWEST_PARTS <= len(parts) <= MOST_PARTS:
        raise InvalidInputError(f"{len(parts)} parts; expected {FEWEST_PARTS} to {MOST_PARTS}")
    weights, double = settings.combination.weights, settings.combination.double
    if weights and len(weights) != len(parts):
        raise InvalidInputError(
            f"weights: {len(weights)} for {len(parts)} parts; expected one for each"
        )
    if double > len(parts):
        raise InvalidInputError(f"double: part {double} does not exist, expected 1 to {len(parts)}")
    return _Planner(tuple(parts), tuple(faces), settings, tuple(landmarks)).plan()


@dataclass
class _Planner:
    parts: tuple[str, ...]
    faces: tuple[int, ...]
    settings: StudySettings
    landmarks: tuple[str, ...]
    rows: list[Row] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)

    def plan(self) -> Protocol:
        self._plan_trained()
        if self.settings.kind == "detectors":
            self._plan_merged("COM", "mwma", ".svm", "merged")
        else:
            self._plan_merged("COM", "wba-final", ".forest", "merged")
            self._cascades()
            self._plan_refined()
        scores = [
            Score(row.score_key, row.key, self.settings.evaluation, self.landmarks)
            for row in self.rows
        ]
        return Protocol(tuple(self.rows), (*self.steps, *scores))

    def _plan_trained(self) -> None:
        count = len(self.parts)
        for part in self.parts:
            self._train((part,), part, "alone")
        if self.settings.combination.unions:
            for size in range(2, count):
                chosen = self.parts[:size]
                self._train(chosen, _join(chosen), "union")
        self._train(self.parts, "Pall", "all")

    def _train(self, parts: tuple[str, ...], name: str, group: Group) -> None:
        self.steps.append(Train(name, parts, self.settings.training))
        self.rows.append(Row(name, name, group, len(parts)))

    def _plan_merged(self, word: str, method: str, suffix: str, group: Group) -> None:
        """Merge more and more parts, then all of them in other ways."""
        for size in range(2, len(self.parts) + 1):
            chosen = self.parts[:size]
            self._merge(word, method, suffix, chosen, group)
        for order in _other_orders(self.parts, self.settings):
            self._merge(word, method, suffix, order, "order")
        share = tuple(float(count) for count in self.faces)
        self._merge(word, method, suffix, self.parts, "weighted", weights=share, how=_BY_FACES)
        chosen_weights = self.settings.combination.weights or (1.5, *[1.0] * (len(self.parts) - 1))
        how = "weights " + ",".join(f"{weight:g}" for weight in chosen_weights)
        self._merge(word, method, suffix, self.parts, "weighted", weights=chosen_weights, how=how)
        doubled = self.parts[self.settings.combination.double - 1]
        self._merge(word, method, suffix, (*self.parts, doubled), "weighted")

    def _merge(
        self,
        word: str,
        method: str,
        suffix: str,
        inputs: tuple[str, ...],
        group: Group,
        *,
        weights: tuple[float, ...] = (),
        how: str = "",
        options: tuple[tuple[str, Any], ...] = (),
    ) -> str:
        name = f"{word}({_join(inputs)})" + (f", {how}" if how else "")
        key = file_key(name)
        self.steps.append(Merge(key, method, inputs, suffix, weights, options))
        self.rows.append(Row(key, name, group, len(set(inputs))))
        return key

    def _cascades(self) -> None:
        step = ("step", self.settings.refinement.step)
        add = self._merge
        for size in range(2, len(self.parts) + 1):
            chosen = self.parts[:size]
            add("CASCADE", "wba-cascade", ".dat", chosen, "cascade", options=(step,))
        thin = self._thin
        add(
            "CASCADE", "wba-cascade", ".dat", self.parts, "cascade",
            how=f"thinned to {thin}", options=(step, ("thin", thin)),
        )  # fmt: skip

    @property
    def _thin(self) -> int:
        training = self.settings.training
        assert isinstance(training, ErtSettings)
        return self.settings.refinement.thin or training.num_trees_per_cascade_level

    def _plan_refined(self) -> None:
        base = file_key(f"CASCADE({_join(self.parts)})")
        for thin in (None, self._thin):
            self._refine(base, thin)

    def _refine(self, base: str, thin: int | None) -> None:
        """Plan rounds as a pool holds them: the first thins, each goes on with the last result."""
        chosen, training = self.settings.refinement, self.settings.training
        assert isinstance(training, ErtSettings)
        for number in range(1, chosen.rounds + 1):
            settings = RefitSettings(
                starts=chosen.starts,
                nu=chosen.refit_nu,
                min_faces=chosen.min_faces,
                thin=thin if number == 1 else None,
                jitter=training.oversampling_translation_jitter,
                seed=self.settings.seed + number - 1,
            )
            how = f"round {number}" + (f", thinned to {thin}" if thin else "")
            name = f"REFINED({_join(self.parts)}), {how}"
            key = file_key(name)
            sent = [f"{key}-by-{part}" for part in self.parts]
            self.steps += [
                Contribute(key_of_part, base, part, settings, self.landmarks)
                for key_of_part, part in zip(sent, self.parts, strict=True)
            ]
            self.steps.append(Merge(key, "leaf-refit", (base, *sent), ".dat"))
            self.rows.append(Row(key, name, "refined", len(self.parts)))
            base = key


def file_key(name: str) -> str:
    """Return a row's name as part of a file name: ``COM(P1+P2)`` is ``COM-P1+P2``."""
    plain = name.replace("(", "-").replace(")", "").replace(", ", "-").replace(",", "_")
    return plain.replace(" ", "-")


def _join(parts: Sequence[str]) -> str:
    if len(parts) <= _MOST_SPELLED_OUT:
        return "+".join(parts)
    numbers = [int(part.removeprefix("P")) for part in parts]
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return "+".join(f"P{run[0]}" + (f"..P{run[-1]}" if len(run) > 1 else "") for run in runs)


def _other_orders(parts: tuple[str, ...], settings: StudySettings) -> Iterator[tuple[str, ...]]:
    """Yield different orders of the parts, none of them their own."""
    random = np.random.default_rng([settings.seed, len(parts)])
    seen = {parts}
    count = min(settings.combination.orders, _possible_orders(len(parts)) - 1)
    while len(seen) <= count:
        order = tuple(parts[place] for place in random.permutation(len(parts)))
        if order not in seen:
            seen.add(order)
            yield order


def _possible_orders(count: int) -> int:
    possible = 1
    for number in range(2, min(count, 6) + 1):
        possible *= number
    return possible
