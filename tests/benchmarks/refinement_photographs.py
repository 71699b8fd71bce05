"""How good refined landmark models are on real photographs.

    python -m tests.benchmarks.refinement_photographs FACES [FACES ...] [--test TEST.xml] [...]

FACES are annotation files with landmarks, or folders of them, which are put together. With --test
they are split into sites at random and every model is tested on TEST; without, pictures are held
out in turn (--folds, --repeats), so that each is tested on by models that never saw it. Pictures
stay whole: faces of one picture are never on both sides.

Prints the rows of the table in the design notes on aggregation as far as they can be had from such
data: sites alone, all data in one place, WBA final, cascade, refined one-shot and level by level,
thinned; with 95 % intervals from resampling pictures, and what the notes measured on 1206
photographs at six sites beside them. `poolctl study landmarks` makes the paper's whole table, with
plots and every model; this check is for whether refinement does on photographs what it should.

The nine example photographs of dlib (43 faces) allow only a rough look: three sites of about ten
faces each. Differences of less than some ten per cent are chance there, the sites' models are far
from good, and the share that a merge gains is not that of a study.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter

import numpy as np

from aggregators import merge
from aggregators.methods.refitting import RefitSettings
from site_agent.datasets import AnnotatedImage, FaceDataset, part_names, read_imglab_xml
from site_agent.datasets.split import split_dataset
from site_agent.evaluation import evaluate_landmarks
from site_agent.refinement import RefinementPlan, SiteSource, load_site, refine_sites
from site_agent.training import ErtSettings, train_ert

BEST_ALONE, EVERYTHING = "best site alone", "all data in one place"
CASCADE, REFINED = "WBA cascade, step 1.1", "refined one-shot, {} rounds"
LEVELWISE, THINNED = "refined level by level", "refined one-shot, {} rounds, thinned"
LEVELWISE_THINNED = "refined level by level, thinned"
# Against the best site alone, in per cent, on 1206 photographs at six sites (design notes).
IN_THE_NOTES = {
    EVERYTHING: -37.0,
    "WBA final": -8.7,
    CASCADE: -13.7,
    REFINED.format(1): -34.0,
    REFINED.format(2): -37.0,
    REFINED.format(3): -39.0,
    LEVELWISE: -38.0,
    LEVELWISE_THINNED: -35.0,
}
_RESAMPLES = 2000


@dataclass
class Row:
    """Errors of one kind of model over all folds.

    Attributes
    ----------
    errors : list of (picture, error)
        One entry a tested face; pictures are numbered over all data.
    best_errors : list of float
        Of the best site's model of the same fold on the same faces.
    """

    name: str
    errors: list[tuple[int, float]] = field(default_factory=list)
    best_errors: list[float] = field(default_factory=list)
    folds: list[float] = field(default_factory=list)
    seconds: float = 0.0
    megabytes: float = 0.0

    @property
    def mean(self) -> float:
        return float(np.mean([error for _, error in self.errors]))

    def against_best(self) -> tuple[float, float, float]:
        """Return the difference to the best site alone in per cent, with its 95 % interval."""
        pictures = np.array([picture for picture, _ in self.errors])
        own = np.array([error for _, error in self.errors])
        best = np.array(self.best_errors)
        known = np.unique(pictures)
        sums = np.array([[v[pictures == p].sum() for p in known] for v in (own, best)])
        random = np.random.default_rng(0)
        picks = random.integers(0, len(known), (_RESAMPLES, len(known)))
        drawn = sums[:, picks].sum(axis=2)
        low, high = np.percentile(100 * (drawn[0] / drawn[1] - 1), [2.5, 97.5])
        return 100 * (own.sum() / best.sum() - 1), float(low), float(high)


@dataclass(frozen=True)
class Fold:
    """What is trained on by each site, and what is tested on."""

    sites: tuple[FaceDataset, ...]
    test: FaceDataset


def main() -> None:
    """Run the check and print what came out."""
    arguments = _arguments()
    faces = _read(arguments.faces)
    numbers = {image.path: number for number, image in enumerate(faces.images)}
    test = None if arguments.test is None else read_imglab_xml(arguments.test)
    if test is not None:
        numbers |= {image.path: 10**6 + n for n, image in enumerate(test.images)}
    _introduce(faces, test, arguments)
    rows: dict[str, Row] = {}
    with tempfile.TemporaryDirectory(prefix="poolctl-photographs-") as temporary:
        for number, fold in enumerate(_folds(faces, test, arguments), start=1):
            started = perf_counter()
            _run(Path(temporary), fold, rows, numbers, arguments)
            print(f"fold {number}: {perf_counter() - started:.0f} s", file=sys.stderr, flush=True)
    _print_table(rows, arguments)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("faces", type=Path, nargs="+", help="annotation files, or folders of them")
    parser.add_argument("--test", type=Path, help="test on this file instead of holding out")
    parser.add_argument("--sites", type=int, default=3)
    parser.add_argument("--folds", type=int, default=3, help="without --test")
    parser.add_argument("--repeats", type=int, default=2, help="other splits, by other seeds")
    parser.add_argument("--trees", type=int, default=100, help="per level")
    parser.add_argument("--levels", type=int, default=10)
    parser.add_argument("--depth", type=int, default=4)
    parser.add_argument("--starts", type=int, default=20, help="starting shapes for each face")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def _read(places: Sequence[Path]) -> FaceDataset:
    """Put together all annotated pictures with landmarks, each once."""
    files = [f for place in places for f in (sorted(place.glob("*.xml")) or [place])]
    images: dict[Path, AnnotatedImage] = {}
    for file in files:
        dataset = read_imglab_xml(file)
        if part_names(dataset):
            images |= {image.path.resolve(): image for image in dataset.images}
    return FaceDataset(None, "photographs", "", tuple(images.values()))


def _folds(
    faces: FaceDataset, test: FaceDataset | None, arguments: argparse.Namespace
) -> Iterator[Fold]:
    shares = {f"site-{number}": 1.0 for number in range(1, arguments.sites + 1)}
    for repeat in range(arguments.repeats):
        seed = arguments.seed + repeat
        if test is not None:
            yield Fold(tuple(split_dataset(faces, shares, seed=seed).values()), test)
            continue
        held = {f"fold-{number}": 1.0 for number in range(arguments.folds)}
        parts = split_dataset(faces, held, seed=seed)
        for name, part in parts.items():
            rest = tuple(i for other, p in parts.items() if other != name for i in p.images)
            trained = split_dataset(FaceDataset(None, images=rest), shares, seed=seed)
            yield Fold(tuple(trained.values()), part)


def _run(
    folder: Path,
    fold: Fold,
    rows: dict[str, Row],
    numbers: dict[Path, int],
    arguments: argparse.Namespace,
) -> None:
    """Make and test all models of one fold."""
    everything = FaceDataset(None, "all", "", tuple(i for s in fold.sites for i in s.images))
    settings = ErtSettings(
        cascade_depth=arguments.levels,
        num_trees_per_cascade_level=arguments.trees,
        tree_depth=arguments.depth,
        oversampling_amount=arguments.starts,
    )

    def train(item: tuple[str, FaceDataset]) -> tuple[Path, float]:
        started = perf_counter()
        output = folder / f"{item[0]}.dat"
        train_ert(item[1], output, settings, training_scores=False)
        return output, perf_counter() - started

    jobs = [(f"site-{n}", site) for n, site in enumerate(fold.sites)]
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        *alone, (all_model, all_s) = list(pool.map(train, [*jobs, ("all", everything)]))
    models = [path for path, _ in alone]
    tested = [_errors(path, fold.test, numbers) for path in models]
    best = min(tested, key=lambda errors: np.mean([error for _, error in errors]))
    bests = [error for _, error in best]

    def note(name: str, path: Path, seconds: float) -> None:
        row = rows.setdefault(name, Row(name))
        errors = best if name == BEST_ALONE else _errors(path, fold.test, numbers)
        row.errors += errors
        row.best_errors += bests
        row.folds.append(float(np.mean([e for _, e in errors]) / np.mean(bests)))
        row.seconds += seconds
        row.megabytes = path.stat().st_size / 1e6

    note(BEST_ALONE, models[0], max(seconds for _, seconds in alone))
    note(EVERYTHING, all_model, all_s)
    started = perf_counter()
    merge("wba-final", models, output=folder / "final.forest")
    note("WBA final", folder / "final.forest", perf_counter() - started)
    base = folder / "cascade.dat"
    for step in (1.0, 1.1):
        started = perf_counter()
        merge("wba-cascade", models, options={"step": step}, output=base)
        note(f"WBA cascade, step {step}", base, perf_counter() - started)
    parts = len(part_names(everything))
    sources = [SiteSource(f"site-{n}", load_site(s, parts)) for n, s in enumerate(fold.sites)]
    for name, plan in _plans(arguments):
        started = perf_counter()
        refine_sites(base, sources, folder / "refined.dat", plan)
        note(name, folder / "refined.dat", perf_counter() - started)


def _plans(arguments: argparse.Namespace) -> Iterator[tuple[str, RefinementPlan]]:
    settings = RefitSettings(starts=arguments.starts, seed=arguments.seed)
    thinned = settings.model_copy(update={"thin": arguments.trees})
    in_step = {"mode": "level-by-level"}
    for rounds in range(1, arguments.rounds + 1):
        yield REFINED.format(rounds), RefinementPlan(settings, rounds=rounds)
    yield THINNED.format(arguments.rounds), RefinementPlan(thinned, rounds=arguments.rounds)
    yield LEVELWISE, RefinementPlan(settings.model_copy(update=in_step))
    yield LEVELWISE_THINNED, RefinementPlan(thinned.model_copy(update=in_step))


def _errors(model: Path, test: FaceDataset, numbers: dict[Path, int]) -> list[tuple[int, float]]:
    scores = evaluate_landmarks(model, test, resamples=0)
    return [(numbers[test.images[face.image_index].path], face.mean) for face in scores.per_face]


def _introduce(faces: FaceDataset, test: FaceDataset | None, arguments: argparse.Namespace) -> None:
    def counted(dataset: FaceDataset) -> str:
        return f"{sum(1 for _ in dataset.boxes())} faces in {len(dataset.images)} pictures"

    how = (
        f"tested on {counted(test)}" if test is not None else f"held out in {arguments.folds} folds"
    )
    print(
        f"{counted(faces)}, {how}, {arguments.repeats} splits; {arguments.sites} sites; "
        f"{arguments.levels} levels of {arguments.trees} trees, {arguments.starts} starting shapes"
    )


def _print_table(rows: dict[str, Row], arguments: argparse.Namespace) -> None:
    print(
        f"\n{'model':42} {'error':>7} {'against best alone':>19} {'95 % interval':>18} "
        f"{'better in':>10} {'MB':>6} {'s':>6} {'design notes':>13}"
    )
    for row in rows.values():
        difference, low, high = row.against_best()
        better = f"{sum(ratio < 1 for ratio in row.folds)} of {len(row.folds)}"
        noted = IN_THE_NOTES.get(row.name)
        print(
            f"{row.name:42} {row.mean:7.4f} {difference:+17.1f} % {low:+8.1f} to {high:+6.1f} "
            f"{better:>10} {row.megabytes:6.2f} {row.seconds / len(row.folds):6.1f} "
            f"{'' if noted is None else f'{noted:+.1f} %':>13}"
        )
    everything = rows[EVERYTHING].mean
    refined = rows[REFINED.format(arguments.rounds)].mean
    thinned = rows[THINNED.format(arguments.rounds)].mean
    print(
        f"\nrefined in {arguments.rounds} rounds against all data in one place: "
        f"{100 * (refined / everything - 1):+.1f} %; thinned: "
        f"{100 * (thinned / everything - 1):+.1f} %"
    )
    pictures = len({picture for picture, _ in rows[EVERYTHING].errors})
    print(
        f"{pictures} pictures were tested on. An interval that holds 0 does not tell a model from "
        "the best site alone, which is chosen by these very tests and so looks better than it is."
    )


if __name__ == "__main__":
    main()
