"""How good refined landmark models are on drawn faces of six sites.

    python -m tests.benchmarks.refinement_study [--persons N] [--trees N] [--folder DIR] [...]

Draws faces of persons, each at one site only, trains a model at every site and
one on all data in one place, merges and refines the sites' models, and tests all on faces of other
persons. Prints a table and whether the aims are met: the cascade merge better than the best single
model; refined one-shot in three rounds at least 25 % better than that and within 5 % of all data in
one place; thinned to the size of one sub-model within 10 %. With --folder the drawn faces and the
trained models are kept and used again.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter

from aggregators import merge, read_model
from aggregators.methods.refitting import RefitSettings
from site_agent.datasets.imglab_xml import read_imglab_xml
from site_agent.datasets.records import FaceDataset
from site_agent.datasets.synthetic.sites import write_face_dataset
from site_agent.evaluation.landmarks import evaluate_landmarks
from site_agent.refinement import RefinementPlan, SiteSource, load_site, refine_sites
from site_agent.training.ert import ErtSettings, train_ert

_SITES = 6
_TEST_PERSONS_FROM = 100_000


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    name: str
    error: float
    seconds: float
    megabytes: float


def main() -> None:
    """Run the study and print its results."""
    arguments = _arguments()
    with tempfile.TemporaryDirectory(prefix="poolctl-study-") as temporary:
        folder = arguments.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        rows: dict[str, Row] = {}
        for row in _rows(folder, arguments):
            rows[row.name] = row
            best = min(row.error for row in rows.values() if row.name.startswith("site "))
            print(
                f"{row.name:34} {row.error:.4f} {100 * (row.error / best - 1):+6.1f} % "
                f"{row.seconds:7.1f} s {row.megabytes:6.1f} MB",
                flush=True,
            )
    sys.exit(0 if _aims_met(rows) else 1)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--persons", type=int, default=60, help="of each site, two pictures each")
    parser.add_argument("--test-persons", type=int, default=100)
    parser.add_argument("--trees", type=int, default=100, help="per level")
    parser.add_argument("--folder", type=Path, help="keep faces and models there")
    return parser.parse_args()


def _rows(folder: Path, arguments: argparse.Namespace) -> Iterator[Row]:
    sites = [_draw(folder, number, arguments) for number in range(_SITES)]
    test = _draw(folder, -1, arguments)
    ert = ErtSettings(
        cascade_depth=10, num_trees_per_cascade_level=arguments.trees, tree_depth=5, threads=2
    )
    models = []
    for number, site in enumerate(sites):
        models.append(folder / f"{_key(arguments)}-site-{number}.dat")
        yield _trained(f"site {number + 1}", site, models[-1], ert, test)
    everything = FaceDataset(None, "all", "", tuple(i for site in sites for i in site.images))
    all_model = folder / f"{_key(arguments)}-all.dat"
    yield _trained("all data in one place", everything, all_model, ert, test)
    base = folder / "cascade.dat"
    for step in (1.0, 1.1):
        started = perf_counter()
        merge("wba-cascade", models, options={"step": step}, output=base)
        yield _row(f"cascade merge, step {step}", base, test, started)
    sources = [
        SiteSource(f"site-{number}", load_site(site, 68)) for number, site in enumerate(sites)
    ]
    for name, plan in _plans(arguments):
        started = perf_counter()
        output = folder / "refined.dat"
        refine_sites(base, sources, output, plan)
        yield _row(name, output, test, started)


def _plans(arguments: argparse.Namespace) -> Iterator[tuple[str, RefinementPlan]]:
    settings = RefitSettings()
    yield "refined one-shot, 1 round", RefinementPlan(settings)
    yield "refined one-shot, 3 rounds", RefinementPlan(settings, rounds=3)
    thinned = settings.model_copy(update={"thin": arguments.trees})
    yield "refined one-shot, 3 rounds, thinned", RefinementPlan(thinned, rounds=3)
    step = {"mode": "level-by-level"}
    yield "refined level by level", RefinementPlan(settings.model_copy(update=step))
    yield "refined level by level, thinned", RefinementPlan(thinned.model_copy(update=step))


def _key(arguments: argparse.Namespace) -> str:
    return f"{arguments.persons}-{arguments.trees}"


def _draw(folder: Path, number: int, arguments: argparse.Namespace) -> FaceDataset:
    """Draw a site's faces, or with -1 the test's."""
    persons = arguments.test_persons if number < 0 else arguments.persons
    name = f"{persons}-{'test' if number < 0 else number}"
    xml = folder / f"{name}.xml"
    if not xml.is_file():
        first = _TEST_PERSONS_FROM if number < 0 else number * persons
        write_face_dataset(
            folder,
            2 * persons,
            persons,
            seed=100 + number,
            image_size=(256, 256),
            first_person=first,
            name=name,
        )
    return read_imglab_xml(xml)


def _trained(
    name: str, faces: FaceDataset, model: Path, settings: ErtSettings, test: FaceDataset
) -> Row:
    started = perf_counter()
    if not model.is_file():
        train_ert(faces, model, replace(settings), training_scores=False)
    return _row(name, model, test, started)


def _row(name: str, model: Path, test: FaceDataset, started: float) -> Row:
    seconds = perf_counter() - started
    scores = evaluate_landmarks(read_model(model), test, workers=2, resamples=1)
    return Row(name, scores.metrics["mean_error"], seconds, model.stat().st_size / 1e6)


def _aims_met(rows: dict[str, Row]) -> bool:
    error = {name: row.error for name, row in rows.items()}
    best = min(value for name, value in error.items() if name.startswith("site "))
    everything = error["all data in one place"]
    cascade = min(value for name, value in error.items() if name.startswith("cascade"))
    refined = error["refined one-shot, 3 rounds"]
    thinned = error["refined one-shot, 3 rounds, thinned"]
    aims: Sequence[tuple[str, float, float]] = [
        ("cascade merge against best single", cascade / best, 1.0),
        ("refined against best single", refined / best, 0.75),
        ("refined against all data in one place", refined / everything, 1.05),
        ("thinned against all data in one place", thinned / everything, 1.10),
    ]
    for name, ratio, limit in aims:
        verdict = "met" if ratio <= limit else "MISSED"
        print(f"{name}: {ratio:.3f} (at most {limit}): {verdict}")
    return all(ratio <= limit for _, ratio, limit in aims)


if __name__ == "__main__":
    main()
