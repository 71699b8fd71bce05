"""The runs of the studies of tables II and IV: models of the parts, alone, merged and refined.

``P1`` is a model trained on one part, ``P1+P2`` on the union of two as if they lay in one place,
``Pall`` on all; ``COM(P1+P2)`` is merged from the models of two parts by the paper's method (MWMA
for detectors, WBA for landmark models). Beyond the paper: ``CASCADE`` is WBA in the form that any
program using dlib runs, ``REFINED`` that with leaves fitted again by all parts.
"""

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from aggregators.formats import file_digest
from aggregators.methods import merge
from aggregators.methods.refitting import RefitSettings, contribute, write_contribution
from site_agent.datasets.landmark_schemes import expand_parts
from site_agent.datasets.records import FaceDataset, part_names
from site_agent.errors import InvalidInputError, TrainingDataError
from site_agent.evaluation.detection import DetectionScores
from site_agent.evaluation.landmarks import evaluate_landmarks
from site_agent.evaluation.model_runs import EvaluationSettings, evaluate_model
from site_agent.plain_json import plain
from site_agent.refinement import CROP_MARGIN, load_site, read_base
from site_agent.settings import Settings
from site_agent.studies.parts import (
    TEST_PART,
    FaceStudyData,
    StudyData,
    join_parts,
    load_parts,
    look,
)
from site_agent.studies.protocol_file import Step, StepJob
from site_agent.training.detector_plan import HogSvmSettings
from site_agent.training.ert import ErtSettings, estimated_memory_bytes, train_ert, trainable_faces
from site_agent.training.hog_svm import needed_memory_bytes, plan_views, train_hog_svm
from site_agent.wording import count_words
from site_agent.work import Progress, part_of
from site_agent.work.processes import processor_count, workers_that_fit

Group = Literal["alone", "union", "all", "merged", "order", "weighted", "cascade", "refined"]

FEWEST_PARTS, MOST_PARTS = 2, 50
_MOST_SPELLED_OUT = 9
_BY_FACES = "by faces"
_READING = 0.1
_CHECKED = {"training_scores": False, "despite_findings": True}
"""Options of trainings: `describe_parts` has checked the data of the study."""


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


class ScoreSettings(Settings, error=InvalidInputError):
    """Settings of the scores."""

    normaliser: str | None = None
    """Landmark models: errors are divided by inter-ocular, outer-corners, box, or none."""
    resamples: int = Field(default=1000, ge=0)
    """Number of bootstrap samples for the intervals; 0: no intervals."""


def plan_study(dataset: FaceStudyData, settings: Any) -> list[Step]:
    """Return the runs that make and score the models of a study."""
    data = look(dataset, settings).data
    return plan_runs(
        [part.name for part in data.parts],
        [part.faces for part in data.parts],
        settings,
        landmarks_of(data, settings),
    )


def plan_runs(
    parts: Sequence[str], faces: Sequence[int], settings: Any, landmarks: Sequence[str] = ()
) -> list[Step]:
    """Plan a study; `landmarks`: names of those that landmark models place."""
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


def landmarks_of(data: StudyData, settings: Any) -> tuple[str, ...]:
    """Return the names of the landmarks that the models place; none for detectors."""
    training = settings.training
    if not isinstance(training, ErtSettings):
        return ()
    named, unknown = expand_parts(training.parts, data.landmarks)
    if unknown or not data.landmarks:
        has = f"no landmarks named {', '.join(unknown[:6])}" if unknown else "no landmarks"
        raise InvalidInputError(f"the parts have {has}; a study of detectors needs none")
    names = tuple(name for name in data.landmarks if not named or name in named)
    lacking = sorted(set(names) - set(part_names(data.test.read())))
    if lacking:
        raise InvalidInputError(
            f"{data.test.source} has no landmarks named {', '.join(lacking[:6])}"
            f"{' ...' if len(lacking) > 6 else ''}; the parts have them"
        )
    return names


@dataclass
class _Planner:
    parts: tuple[str, ...]
    faces: tuple[int, ...]
    settings: Any
    landmarks: tuple[str, ...]
    steps: list[Step] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    """The file of each model by the key of its run."""

    def plan(self) -> list[Step]:
        self._plan_trained()
        if not self._is_of_landmarks:
            self._plan_merged("mwma", ".svm")
        else:
            self._plan_merged("wba-final", ".forest")
            self._cascades()
            for thin in (None, self._thin):
                self._refine(f"CASCADE({_join(self.parts)})", thin)
        scores = [
            self._step(
                "score", step.factors, [step.key],
                {
                    "file": self.files[step.key], "landmarks": self.landmarks,
                    "evaluation": asdict(self.settings.evaluation),
                },
                uses=(TEST_PART,), cost=1 + 0.02 * sum(self.faces),
            )
            for step in self.steps
        ]  # fmt: skip
        return [*self.steps, *scores]

    @property
    def _is_of_landmarks(self) -> bool:
        return isinstance(self.settings.training, ErtSettings)

    def _step(
        self,
        verb: str,
        factors: Mapping[str, Any],
        needs: Sequence[str],
        options: Mapping[str, Any],
        *,
        uses: tuple[str, ...],
        cost: float,
    ) -> Step:
        return Step(
            f"{verb}_{file_key(factors['model'])}",
            "scored" if verb == "score" else "made",
            f"{__name__}:{verb}",
            factors,
            tuple(dict.fromkeys(needs)),
            # The options have those that count.
            frozenset(vars(self.settings)),
            "models",
            cost,
            options,
            uses,
        )

    def _add(
        self,
        verb: str,
        factors: Mapping[str, Any],
        needs: Sequence[str],
        options: Mapping[str, Any],
        *,
        suffix: str,
        uses: tuple[str, ...] = (),
        cost: float = 1.0,
    ) -> None:
        step = self._step(verb, factors, needs, {**options, "suffix": suffix}, uses=uses, cost=cost)
        self.steps.append(step)
        self.files[step.key] = f"{file_key(factors['model'])}{suffix}"

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
        training = asdict(self.settings.training)
        suffix = ".dat" if self._is_of_landmarks else ".svm"
        if self._is_of_landmarks:
            training["parts"] = self.landmarks if self.settings.training.parts else ()
        else:
            # The result of detector training does not depend on it.
            training.pop("threads")
        faces = dict(zip(self.parts, self.faces, strict=True))
        cost = 5.0 + sum(faces[part] for part in parts)
        factors = {"model": name, "group": group, "parts": len(parts)}
        self._add(
            "train", factors, (), {"training": training}, suffix=suffix, uses=parts, cost=cost
        )

    def _plan_merged(self, method: str, suffix: str) -> None:
        """Merge more and more parts, then all of them in other ways."""
        for size in range(2, len(self.parts) + 1):
            self._merge("COM", method, suffix, self.parts[:size], "merged")
        for order in _other_orders(self.parts, self.settings):
            self._merge("COM", method, suffix, order, "order")
        share = tuple(float(count) for count in self.faces)
        self._merge("COM", method, suffix, self.parts, "weighted", weights=share, how=_BY_FACES)
        chosen_weights = self.settings.combination.weights or (1.5, *[1.0] * (len(self.parts) - 1))
        how = "weights " + ",".join(f"{weight:g}" for weight in chosen_weights)
        self._merge("COM", method, suffix, self.parts, "weighted", weights=chosen_weights, how=how)
        doubled = self.parts[self.settings.combination.double - 1]
        self._merge("COM", method, suffix, (*self.parts, doubled), "weighted")

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
        options: Mapping[str, Any] | None = None,
    ) -> None:
        name = f"{word}({_join(inputs)})" + (f", {how}" if how else "")
        needs = [f"train_{part}" for part in inputs]
        chosen = {
            "method": method, "weights": weights, "options": options or {},
            "inputs": [self.files[key] for key in needs],
        }  # fmt: skip
        factors = {"model": name, "group": group, "parts": len(set(inputs))}
        self._add("combine", factors, needs, chosen, suffix=suffix, cost=0.5 * (1 + len(inputs)))

    def _cascades(self) -> None:
        step = {"step": self.settings.refinement.step}
        for size in range(2, len(self.parts) + 1):
            chosen = self.parts[:size]
            self._merge("CASCADE", "wba-cascade", ".dat", chosen, "cascade", options=step)
        thin = self._thin
        self._merge(
            "CASCADE", "wba-cascade", ".dat", self.parts, "cascade",
            how=f"thinned to {thin}", options={**step, "thin": thin},
        )  # fmt: skip

    @property
    def _thin(self) -> int:
        thin: int = (
            self.settings.refinement.thin or self.settings.training.num_trees_per_cascade_level
        )
        return thin

    def _refine(self, base: str, thin: int | None) -> None:
        """Plan rounds as a pool holds them: the first thins, each goes on with the last result."""
        chosen, training = self.settings.refinement, self.settings.training
        key = f"combine_{file_key(base)}"
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
            options = {
                "base": self.files[key], "landmarks": self.landmarks,
                "settings": settings.model_dump(mode="json"),
            }  # fmt: skip
            factors = {"model": name, "group": "refined", "parts": len(self.parts)}
            cost = len(self.parts) + 0.2 * sum(self.faces)
            self._add("refine", factors, [key], options, suffix=".dat", uses=self.parts, cost=cost)
            key = f"refine_{file_key(name)}"


def train(job: StepJob, progress: Progress) -> dict[str, Any]:
    """Train a model on the union of some parts."""
    parts = load_parts(job.data).by_name
    dataset = join_parts([parts[part].read() for part in job.step.uses or ()])
    values = job.step.options["training"]

    def make(output: Path) -> Sequence[str]:
        if "tree_depth" in values:
            made = train_ert(dataset, output, ErtSettings(**values), progress, **_CHECKED)
            return made.record.warnings
        settings = HogSvmSettings(**values, threads=job.threads)
        return train_hog_svm(dataset, output, settings, progress, **_CHECKED).record.warnings

    return _made(job, make)


def combine(job: StepJob, progress: Progress) -> dict[str, Any]:
    """Merge models of other runs."""
    options = job.step.options

    def make(output: Path) -> Sequence[str]:
        return merge(
            options["method"],
            [job.study / "models" / name for name in options["inputs"]],
            weights=options["weights"] or None,
            options=dict(options["options"]),
            output=output,
            progress=progress,
        ).warnings

    return _made(job, make)


def refine(job: StepJob, progress: Progress) -> dict[str, Any]:
    """Fit the leaves of a merged model to the faces of each part, as sites do in a round."""
    options, parts = job.step.options, job.step.uses or ()
    settings = RefitSettings.model_validate(options["settings"])
    base_file = job.study / "models" / options["base"]
    data = load_parts(job.data)

    def make(output: Path) -> Sequence[str]:
        base, sent, warnings = read_base(base_file), [], []
        for number, part in enumerate(parts):
            share = part_of(progress, number / len(parts), (number + 1) / len(parts))
            site = load_site(
                data.by_name[part].read(),
                base.part_count,
                parts=options["landmarks"],
                margin=CROP_MARGIN + settings.jitter,
                progress=part_of(share, 0, _READING),
            )
            contribution = contribute(
                base, site.faces, settings, threads=job.threads,
                progress=part_of(share, _READING, 1),
            )  # fmt: skip
            sent.append(job.folder / f"{output.stem}-by-{part}.contribution")
            write_contribution(contribution, sent[-1])
            if site.left_out:
                line, text = site.left_out[0]
                count = count_words(len(site.left_out), "face")
                warnings.append(f"{count} left out of refinement (line {line}: {text})")
        merged = merge("leaf-refit", [base_file, *sent], options={}, output=output)
        # They are large, and can be made again.
        for file in sent:
            file.unlink()
        return [*merged.warnings, *warnings]

    return _made(job, make)


def _made(job: StepJob, make: Callable[[Path], Sequence[str]]) -> dict[str, Any]:
    """Return the facts of a model that `make` writes."""
    began_s = time.monotonic()
    output = job.folder / f"{file_key(job.factors.model)}{job.step.options['suffix']}"
    warnings = [str(warning) for warning in make(output)]
    return {
        "file": f"models/{output.name}", "sha256": file_digest(output),
        "size_bytes": output.stat().st_size, "took_s": round(time.monotonic() - began_s, 3),
        "warnings": json.dumps(warnings),
    }  # fmt: skip


def score(job: StepJob, progress: Progress) -> list[dict[str, Any]]:
    """Score a model on the test data.

    Returns a row with each metric and the ends of its interval, and rows with the points of its
    curve: recall and precision, or errors of faces and the share of faces below them.
    """
    options = job.step.options
    model, test = job.study / "models" / options["file"], load_parts(job.data).test.read()
    chosen = options["evaluation"]
    if not options["landmarks"]:
        settings = EvaluationSettings(resamples=chosen["resamples"])
        # More than one worker would be processes, of which this is one already.
        scores: Any = evaluate_model(
            model, test, settings, workers=1, despite_findings=True, progress=progress
        )
    else:
        # A merged model has no training record that would say which landmarks it places.
        scores = evaluate_landmarks(
            model, test, parts=options["landmarks"], workers=job.threads, progress=progress,
            **chosen,
        )  # fmt: skip
    row = {"faces": scores.faces, "images": scores.images, **scores.metrics}
    for name, (low, high) in scores.intervals.items():
        row |= {f"{name}_low": low, f"{name}_high": high}
    if isinstance(scores, DetectionScores):
        _, y, x = scores.precision_recall()
    else:
        row["normaliser"] = scores.normaliser
        x, y = scores.cumulative_errors()
    curve = [{"curve_x": float(a), "curve_y": float(b)} for a, b in zip(x, y, strict=True)]
    return [plain(row), *curve]


def count_workers(dataset: FaceStudyData, settings: Any) -> int:
    """Return how many trainings the memory and the processors allow at once."""
    seen, training = look(dataset, settings), settings.training
    parts = [*seen.parts.values()]
    trained = [[part] for part in parts] + [parts]
    if settings.combination.unions:
        trained += [parts[:size] for size in range(2, len(parts))]
    most = max(1, processor_count() // max(1, training.threads))
    needed = [_needed_bytes(join_parts(some), training, seen.data.landmarks) for some in trained]
    return workers_that_fit(most, needed)


def _needed_bytes(dataset: FaceDataset, training: Any, landmarks: Sequence[str]) -> int:
    """Return the memory that a training needs, 0 where it will be refused anyway."""
    if isinstance(training, ErtSettings):
        count = len(training.parts or landmarks)
        return estimated_memory_bytes(trainable_faces(dataset), count, training)
    try:
        return needed_memory_bytes(dataset, plan_views(dataset, training), training)
    except TrainingDataError:
        return 0


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


def _other_orders(parts: tuple[str, ...], settings: Any) -> Iterator[tuple[str, ...]]:
    """Yield different orders of the parts, none of them their own."""
    random = np.random.default_rng([settings.seed, len(parts)])
    seen = {parts}
    count = min(settings.combination.orders, math.factorial(min(len(parts), 6)) - 1)
    while len(seen) <= count:
        order = tuple(parts[place] for place in random.permutation(len(parts)))
        if order not in seen:
            seen.add(order)
            yield order
