"""The span attack tells members while fewer samples than units trained, in sums as well."""

import numpy as np
import pytest

from aggregators.methods.round_options import LocalTraining
from aggregators.models import StateDict
from site_agent.attacks.leaks import apply_update, leak_of_network
from site_agent.attacks.separation import separation
from site_agent.attacks.span import span_scores
from site_agent.datasets.gaze.records import GazeSamples, join_samples
from site_agent.datasets.synthetic.eye_patches.dataset import RenderSettings, render_person
from site_agent.datasets.synthetic.eye_patches.persons import Skews
from site_agent.federated.leak_checks import warn_of_span
from site_agent.federated.local_training import train_contribution
from site_agent.networks.modules import new_network

SITES = 5
UNITS = 300
"""Of the first dense layer of the small network."""

pytestmark = pytest.mark.usefixtures("small_lenet")


@pytest.fixture(scope="module")
def persons() -> list[GazeSamples]:
    settings = RenderSettings(
        persons=SITES + 4, frames_per_person=40, sessions=(1, 1), seed=3, skews=Skews(amount=1.0)
    )
    return [render_person(settings, number) for number in settings.numbers]


def auc_of(base: StateDict, after: StateDict, members: GazeSamples, others: GazeSamples) -> float:
    candidates = join_samples([members, others])
    scores = span_scores(leak_of_network(base, after), candidates)
    assert list(scores) == ["span of fc1"]
    is_member = np.arange(len(candidates)) < len(members)
    return separation(scores["span of fc1"], is_member, resamples=0).auc


@pytest.mark.parametrize(("training", "least"), [
    (LocalTraining(learning_rate=0.002), 0.99), (LocalTraining(), 0.9),
])  # fmt: skip
def test_the_span_of_a_sum_tells_the_samples_of_every_site(
    training: LocalTraining, least: float, persons: list[GazeSamples]
) -> None:
    base, others = new_network("gaze-lenet", 5), join_samples(persons[SITES:])
    updates = [
        train_contribution(base, "0" * 64, samples, training, site=f"s{n}", round_number=1)
        for n, samples in enumerate(persons[:SITES])
    ]
    assert sum(len(samples) for samples in persons[:SITES]) < UNITS
    alone, summed = apply_update(base, updates[0]), apply_update(base, *updates)
    assert auc_of(base, alone, persons[0], others) >= least
    for samples in persons[:SITES]:
        assert auc_of(base, summed, samples, others) >= least
    without = apply_update(base, *updates[1:])
    assert auc_of(base, without, persons[0], others) < 0.9


def test_sites_with_fewer_samples_than_units_are_warned() -> None:
    network = new_network("gaze-lenet", 5)
    assert "fewer than the 300 units" in warn_of_span(network, UNITS - 1)
    assert warn_of_span(network, UNITS) == ""
