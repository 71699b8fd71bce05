"""Live rounds as users start them: a server and sites as processes, with mutual TLS."""

from __future__ import annotations

from pathlib import Path

from site_agent.federated.in_process import run_rounds
from site_agent.federated.plan import make_plan
from site_agent.networks import new_network
from tests.cli.federated.live_federation import live_federation


def test_live_rounds_have_the_digests_of_rounds_in_one_process(tmp_path: Path) -> None:
    plan = make_plan("fedadam", {"batch_size": 8}, rounds=2)
    with live_federation(tmp_path, 2) as federation:
        federation.start("server", *federation.sites)
        done = federation.submit("--method", "fedadam", "--rounds", 2, "--option", "batch_size=8")
        held = list(run_rounds(new_network("gaze-lenet", 1), federation.samples(), plan))
    assert [(each["digest"], each["updates"]) for each in done.data["rounds"]] == [
        (each.model.digest, each.update_digests) for each in held
    ]
