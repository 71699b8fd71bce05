"""Compare the server optimisers with FedAvg at their defaults, at equal rounds, on drawn eyes.

    python -m tests.benchmarks.server_optimisers [--draws 3] [--seeds 3] [--rounds 12]

Each draw has ten other persons as sites, and five to test; each seed begins with another network.
The table has the mean errors of a draw over seeds, in degrees, and FedAvg's standard deviation;
``--option eta=0.5`` and the like try other settings of the optimisers.
"""

import argparse
from collections.abc import Mapping
from typing import Any

import numpy as np

from site_agent.datasets.gaze.records import GazeSamples, angular_errors_deg, join_samples
from site_agent.datasets.synthetic.eye_patches.dataset import RenderSettings, render_person
from site_agent.datasets.synthetic.eye_patches.persons import Skews
from site_agent.federated.in_process import run_rounds
from site_agent.federated.plan import make_plan
from site_agent.networks.modules import new_network, predict_gaze, to_module

METHODS = ("fedavg", "fedavgm", "fedadam", "fedyogi", "fedadagrad")
_SITES, _TESTED = 10, 5


def main() -> None:
    """Print a line for each draw, and the constant mean gaze next to it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--frames", type=int, default=80)
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--option", action="append", default=[], metavar="KEY=VALUE")
    arguments = parser.parse_args()
    chosen = {
        name: float(value) for name, _, value in (text.partition("=") for text in arguments.option)
    }
    methods = arguments.methods.split(",")
    print("draw  mean gaze  sd over seeds  " + "  ".join(f"{name:>10}" for name in methods))
    for draw in range(arguments.draws):
        sites, test = draw_people(100 * draw + 7, arguments.frames)
        mean = join_samples([*sites.values()]).gaze.mean(axis=0)
        constant = angular_errors_deg(np.tile(mean, (len(test), 1)), test.gaze).mean()
        rows = [
            [train(name, chosen, sites, test, seed, arguments.rounds) for name in methods]
            for seed in range(arguments.seeds)
        ]
        spread = np.std(rows, axis=0, ddof=1)[0] if len(rows) > 1 else np.nan
        means = "  ".join(f"{value:10.2f}" for value in np.mean(rows, axis=0))
        print(f"{draw:4}  {constant:9.2f}  {spread:13.2f}  {means}", flush=True)


def draw_people(seed: int, frames: int) -> tuple[dict[str, GazeSamples], GazeSamples]:
    """Return the samples of the sites by name, and those of other persons together."""
    settings = RenderSettings(
        persons=_SITES + _TESTED, frames_per_person=frames, seed=seed, skews=Skews(amount=1.0)
    )
    people = [render_person(settings, number) for number in settings.numbers]
    sites = {str(samples.person[0]): samples for samples in people[:_SITES]}
    return sites, join_samples(people[_SITES:])


def train(  # noqa: PLR0917 - one cell of the table
    method: str,
    chosen: Mapping[str, Any],
    sites: Mapping[str, GazeSamples],
    test: GazeSamples,
    seed: int,
    rounds: int,
) -> float:
    """Return the error after the rounds, in degrees; options that a method lacks are left out."""
    fields = make_plan(method, {}, rounds=1).options
    options = {name: value for name, value in chosen.items() if name in fields}
    plan = make_plan(method, {**options, "seed": seed}, rounds=rounds)
    *_, held = run_rounds(new_network("gaze-lenet", seed), sites, plan)
    predicted = predict_gaze(to_module(held.model.network), test.patches, test.head)
    return float(angular_errors_deg(predicted, test.gaze).mean())


if __name__ == "__main__":
    main()
