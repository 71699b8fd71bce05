"""Eye models trained on few faces: the settings by number of faces, and those for many.

    python -m tests.benchmarks.eyes_of_few_faces [--faces 30,100,300] [--sites 4]

Models of drawn faces are tested on 200 faces of other persons: mean error in distances between the
eyes, how far they follow the lids (range of the eye aspect ratio, 1 is all of it), and F1 of the
blinks that are found with them in drawn videos, which settles the number of faces at which the
settings change: ``--faces 500,1000,2000`` shows it. Then the models of several sites, one set of
settings after the other, are merged (`wba-cascade`) and refined with the faces of all sites; all
faces in one place is the bar.
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
from site_agent.training.ert import ErtSettings, settings_for_blinks, train_ert
from tests.benchmarks.blink_peers import drawn_videos, read_truth
from tests.benchmarks.blink_speed import FOLDER, run_pipeline
from tests.benchmarks.blinks_on_traces import Counts
from tests.site_agent.eyeblink.matching import match_blinks

MANY = 10_000
"""As many faces as need no other settings."""
FEW = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--faces", default="30,100,300")
    parser.add_argument("--sites", type=int, default=4, help="0: none of the second part")
    parser.add_argument("--trees", type=int, help="of a level; default: as the settings have it")
    arguments = parser.parse_args()
    counts = [int(word) for word in arguments.faces.split(",")]
    with tempfile.TemporaryDirectory(prefix="poolctl-benchmark-") as name:
        folder = Path(name)
        test = _draw(folder / "test", 200, first_person=5000, seed=99)
        videos = drawn_videos(FOLDER / "peers")
        print("faces   settings for   error   range   F1 of blinks")
        for count in counts:
            faces = _draw(folder / f"faces-{count}", count, first_person=0, seed=1)
            for fit, at in (("many", MANY), ("few", FEW)):
                model = _train(faces, folder / f"{count}-{fit}.dat", at, arguments.trees)
                error, shown = _score(model, test)
                print(
                    f"{count:5} {fit:>14} {error:7.4f} {shown:7.2f} {_f1(model, videos):14.3f}",
                    flush=True,
                )
        if not arguments.sites:
            return
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


def _f1(model: Path, videos: Path) -> float:
    """Return F1 of the blinks of all videos."""
    matches = [
        match_blinks(run_pipeline(path, model).intervals(), read_truth(videos, path.stem))
        for path in sorted(videos.glob("*.mp4"))
    ]
    return Counts.of(matches).f1


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
