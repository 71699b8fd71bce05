"""Split training through sockets: mutual TLS, three kinds of parties, and the laws of memory."""

from pathlib import Path

import pytest

from aggregators.formats import encode_model
from aggregators.methods.round_options import LocalTraining
from site_agent.networks.modules import new_network
from site_agent.split.in_process import run_split_rounds
from site_agent.split.parts import join_parts, traffic_of
from site_agent.split.plan import SplitPlan
from site_agent.split.training import steps_of
from site_agent.training.gaze.loop import repeatable
from tests.site_agent.federated.small_sites import small_sites
from tests.site_agent.split.live_split import live_split


@pytest.fixture(autouse=True)
def _one_way_to_compute() -> object:
    """Services and clients share this process, and with it the number of torch's threads."""
    with repeatable():
        yield


@pytest.mark.parametrize(
    ("cut", "optimiser"),
    [
        ("u", "adam"),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (("pool1", "sgd"), ("pool2", "adam"), ("fc1", "sgd"))
        ),
    ],
)
def test_processes_learn_what_one_process_learns(tmp_path: Path, cut: str, optimiser: str) -> None:
    training = LocalTraining(learning_rate=0.002)
    plan = SplitPlan.model_validate(
        {"cut": cut, "optimiser": optimiser, "rounds": 2, "training": training}
    )
    *_, expected = run_split_rounds(new_network("gaze-lenet"), small_sites(), plan)
    with live_split(tmp_path, plan) as live:
        reports = live.run_clients()
        networks = [live.aggregator.rounds.model.network, live.server.rounds.model.network]
    assert encode_model(join_parts(*networks)) == encode_model(expected.network)
    assert {report.part_digest for report in reports.values()} == {expected.client.digest}
    samples = {site: len(entry) for site, entry in small_sites().items()}
    epochs = {site: steps_of(plan, count)[1] for site, count in samples.items()}
    moved = traffic_of(plan.found_cut, samples, rounds=2, epochs=epochs)
    steps = sum(report.server_bytes for report in reports.values())
    # Two samples a step are few: headers, and questions while others train, weigh more there.
    assert moved.steps < steps < (1.3 if cut == "fc1" else 1.02) * moved.steps
