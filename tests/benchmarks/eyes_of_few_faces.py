"""Eye models trained on few faces: the settings by number of faces, and those for many.

    python -m tests.benchmarks.eyes_of_few_faces [--faces 30,100,300] [--sites 4]

Models of drawn faces are tested on 200 faces of other persons: mean error in distances between the
eyes, and how far they follow the lids (range of the eye aspect ratio, 1 is all of it). Then the
models of several sites, one set of settings after the other, are merged (`wba-cascade`) and refined
with the faces of all sites; all faces in one place is the bar.
"""

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path

from aggregators.methods import merge
from aggregators.methods.refitting import RefitSettings
from site_agent.datasets.imglab_xml import read_imglab_xml
from site_agent.datasets.records import FaceDataset
from site_agent.datasets.synthetic.sites import write_face_dataset
from site_agent.evaluation.model_runs import evaluate_model
from site_agent.refinement import (
    CROP_MARGIN,
    RefinementPlan,
    SiteSource,
    load_site,
    read_base,
    refine_sites,
)
from site_agent.training.ert import ErtSettings, train_ert
from site_agent.training.starter import settings_for_blinks

MANY = 10_000
"""As many faces as need no other settings."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--faces", default="30,100,300")
    parser.add_argument("--sites", type=int, default=4)
    parser.add_argument("--trees", type=int, help="of a level; default: as the settings have it")
    arguments = parser.parse_args()
    counts = [int(word) for word in arguments.faces.split(",")]
    with tempfile.TemporaryDirectory(prefix="poolctl-benchmark-") as name:
        folder = Path(name)
        test = _draw(folder / "test", 200, first_person=5000, seed=99)
        print("faces   settings for many: error, range   by number: error, range   error now")
        for count in counts:
            faces = _draw(folder / f"faces-{count}", count, first_person=0, seed=1)
            (before, wide), (after, wider) = (
                _score(_train(faces, folder / f"{count}-{at}.dat", at, arguments.trees), test)
                for at in (MANY, count)
            )
            print(
                f"{count:5} {before:28.4f} {wide:7.2f} {after:18.4f} {wider:7.2f} "
                f"{after / before:11.2f}",
                flush=True,
            )
        count = counts[len(counts) // 2]
        sites = [
            _draw(folder / f"site-{number}", count, first_person=1000 + count * number, seed=number)
            for number in range(arguments.sites)
        ]
        for label, at in (("settings for many", MANY), ("by number of faces", count)):
            _share(label, at, sites, test, folder, arguments.trees)


def _draw(folder: Path, count: int, *, first_person: int, seed: int) -> FaceDataset:
    xml = write_face_dataset(folder, count, count, seed, first_person=first_person)
    return read_imglab_xml(xml)


def _settings(faces: int, trees: int | None) -> ErtSettings:
    settings = replace(settings_for_blinks(faces), threads=1)
    return settings if trees is None else replace(settings, num_trees_per_cascade_level=trees)


def _train(faces: FaceDataset, output: Path, at: int, trees: int | None) -> Path:
    return train_ert(faces, output, _settings(at, trees), training_scores=False).model_path


def _score(model: Path, test: FaceDataset) -> tuple[float, float]:
    metrics = evaluate_model(model, test, workers=0).metrics
    return metrics["mean_error"], metrics["ear_range"]


def _share(  # noqa: PLR0917
    label: str,
    at: int,
    sites: list[FaceDataset],
    test: FaceDataset,
    folder: Path,
    trees: int | None,
) -> None:
    """Print the errors of one site's model, of all merged, refined, and of all data together."""
    models = [
        _train(faces, folder / f"{at}-site-{number}.dat", at, trees)
        for number, faces in enumerate(sites)
    ]
    merged = folder / f"{at}-merged.dat"
    merge("wba-cascade", models, options={"step": 1.1}, output=merged)
    base = read_base(merged)
    settings = RefitSettings()
    sources = [
        SiteSource(
            f"site-{number}",
            load_site(
                faces,
                base.part_count,
                initial_shape=base.initial_shape,
                margin=CROP_MARGIN + settings.jitter,
            ),
        )
        for number, faces in enumerate(sites)
    ]
    refined = folder / f"{at}-refined.dat"
    refine_sites(merged, sources, refined, RefinementPlan(settings, rounds=3, threads=1))
    everything = FaceDataset(
        folder / "all.xml", "all", "", tuple(image for faces in sites for image in faces.images)
    )
    together = _train(everything, folder / f"{at}-all.dat", at, trees)
    print(f"\n{len(sites)} sites of {len(sites[0].images)} faces, {label}: error, range")
    for name, model in (
        ("one site", models[0]),
        ("merged", merged),
        ("refined", refined),
        ("all data in one place", together),
    ):
        error, shown = _score(model, test)
        print(f"  {name:22} {error:.4f} {shown:7.2f}", flush=True)


if __name__ == "__main__":
    main()
