"""The cost of leaving out leaves that fewer than 3 labs reach in secure leaf refinement.

    python -m tests.benchmarks.secure_refinement [--labs 3,5] [--persons 30] [--trees 40]
        [--rounds 3]

Every lab draws faces of persons of its own and trains a model; the cascade merge of all
is the base. The labs then refine it in rounds, plainly, and by two secure sums a round (which
leaves the labs reach, and the changes of those that at least `least_labs` reach). Prints the mean
landmark error on faces of other persons, in eye distances, and how many of the leaves that some lab
sends changes of are left out.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np

from aggregators import merge, read_model
from aggregators.methods.refitting import RefitSettings, read_contribution
from site_agent.datasets.imglab_xml import read_imglab_xml
from site_agent.datasets.records import FaceDataset
from site_agent.datasets.synthetic.sites import write_face_dataset
from site_agent.evaluation.landmarks import evaluate_landmarks
from site_agent.refinement import (
    RefinementPlan,
    SiteSource,
    load_site,
    read_base,
    write_contributions,
)
from site_agent.secure.sums import encode_leaf_presence, encode_leaf_sums, read_presence
from site_agent.training.ert import ErtSettings, train_ert
from tests.site_agent.secure.parties import Parties, create_parties

_TEST_PERSONS_FROM = 100_000


def main() -> None:
    chosen = _arguments()
    counts = [int(count) for count in chosen.labs.split(",")]
    with tempfile.TemporaryDirectory(prefix="poolctl-benchmark-") as scratch:
        folder = Path(scratch)
        test = _draw(folder, "test", chosen.test_persons, _TEST_PERSONS_FROM)
        faces = [
            _draw(folder, f"lab-{number}", chosen.persons, number * chosen.persons)
            for number in range(max(counts))
        ]
        settings = ErtSettings(
            cascade_depth=6, num_trees_per_cascade_level=chosen.trees, tree_depth=4, threads=1
        )
        models = []
        for number, site_faces in enumerate(faces):
            models.append(folder / f"lab-{number}.dat")
            train_ert(site_faces, models[-1], settings, training_scores=False)
        print("mean landmark error / eye distance on other persons")
        print(
            f"{'labs':>4} {'round':>6} {'base':>8} {'plain':>8} {'secure':>8} {'secure/plain':>13} "
            f"{'leaves left out':>16}"
        )
        for count in counts:
            place = folder / f"{count}-labs"
            place.mkdir()
            base = place / "base.dat"
            merge("wba-cascade", models[:count], options={"step": 1.1}, output=base)
            parties = create_parties(place, labs=count)
            sources = [
                SiteSource(f"lab-{number}", load_site(site_faces, 68))
                for number, site_faces in enumerate(faces[:count])
            ]
            before = _error(base, test)
            plain = secure = base
            for number in range(1, chosen.rounds + 1):
                plan = RefinementPlan(RefitSettings(seed=number), threads=1)
                plain = _refined_plainly(plain, sources, plan, place / f"plain-{number}")
                secure, left_out = _refined_by_sums(
                    parties, secure, sources, plan, place / f"secure-{number}"
                )
                errors = _error(plain, test), _error(secure, test)
                print(
                    f"{count:4} {number:6} {before:8.4f} {errors[0]:8.4f} {errors[1]:8.4f} "
                    f"{errors[1] / errors[0]:13.3f} {left_out:16.1%}",
                    flush=True,
                )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--labs", default="3,5")
    parser.add_argument("--persons", type=int, default=30, help="of each lab, two pictures each")
    parser.add_argument("--test-persons", type=int, default=60)
    parser.add_argument("--trees", type=int, default=40, help="per level")
    parser.add_argument("--rounds", type=int, default=3)
    return parser.parse_args()


def _draw(folder: Path, name: str, persons: int, first: int) -> FaceDataset:
    write_face_dataset(
        folder,
        2 * persons,
        persons,
        seed=100 + first,
        image_size=(256, 256),
        first_person=first,
        name=name,
    )
    return read_imglab_xml(folder / f"{name}.xml")


def _refined_plainly(
    base: Path, sources: list[SiteSource], plan: RefinementPlan, folder: Path
) -> Path:
    files = write_contributions(read_base(base), sources, folder, plan)
    merge("leaf-refit", [base, *files], output=folder / "refined.dat")
    return folder / "refined.dat"


def _refined_by_sums(
    parties: Parties, base: Path, sources: list[SiteSource], plan: RefinementPlan, folder: Path
) -> tuple[Path, float]:
    """Return the refined model, and the share of the reached leaves that are left out."""
    files = write_contributions(read_base(base), sources, folder, plan)
    labs = dict(zip(parties.charter.labs, files, strict=True))
    budget, least = parties.charter.budget, parties.charter.terms.least_labs
    presence = {lab: encode_leaf_presence(path, budget) for lab, path in labs.items()}
    reached = read_presence(parties.sum_of(presence, folder / "presence"))
    sums = {lab: encode_leaf_sums(path, reached, least, budget) for lab, path in labs.items()}
    combined = parties.sum_of(sums, folder / "combined.contribution")
    summed = read_contribution(combined).counts > 0
    merge("leaf-refit", [base, combined], output=folder / "refined.dat")
    return folder / "refined.dat", 1 - np.sum(summed) / np.sum(reached > 0)


def _error(model: Path, test: FaceDataset) -> float:
    evaluation = evaluate_landmarks(read_model(model), test, workers=1, resamples=1)
    return float(evaluation.metrics["mean_error"])


if __name__ == "__main__":
    main()
