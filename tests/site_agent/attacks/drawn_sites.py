"""Sites of drawn persons and the rounds that they held: the smallest that leak."""

from functools import cache

import numpy as np

from site_agent.attacks.leaks import RecordedRound, record_rounds
from site_agent.datasets.gaze.records import GazeSamples
from site_agent.datasets.synthetic.eye_patches.dataset import RenderSettings, render_person
from site_agent.datasets.synthetic.eye_patches.persons import Skews
from site_agent.federated.plan import make_plan
from site_agent.networks.modules import new_network

PLAN = make_plan(
    "fedavg",
    {"epochs": 2, "batch_size": 16, "learning_rate": 0.01, "learning_rate_decay": 0.1},
    rounds=2,
)
SITES = 5


@cache
def persons() -> dict[str, tuple[GazeSamples, GazeSamples]]:
    """Return the training samples, and other frames of the same session, by person."""
    settings = RenderSettings(
        persons=SITES, frames_per_person=54, sessions=(1, 1), seed=3, skews=Skews(amount=1.0)
    )
    drawn = {}
    for number in settings.numbers:
        samples = render_person(settings, number)
        trains = np.arange(len(samples)) % 3 < 2
        drawn[str(samples.person[0])] = (samples[trains], samples[~trains])
    return drawn


@cache
def recorded() -> list[RecordedRound]:
    """Return two rounds of the drawn sites."""
    sites = {name: trains for name, (trains, _) in persons().items()}
    return record_rounds(new_network("gaze-lenet", 5), sites, PLAN)
