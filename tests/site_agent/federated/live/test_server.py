"""The server of live rounds takes plans and networks from its submitter alone, and nothing else."""

from collections.abc import Iterator
from typing import Any

import pytest

from aggregators.formats import encode_model
from site_agent.errors import ConflictError, FederationError, InvalidInputError
from site_agent.federated.live.server import RoundsServer
from site_agent.federated.plan import FederationPlan, first_model, make_plan
from site_agent.live.connection import ServiceConnection
from site_agent.networks.modules import new_network
from tests.site_agent.federated.live.live_rounds import LiveRounds

NETWORK = new_network("gaze-lenet", 1)
FIRST = first_model(NETWORK).digest
SITES = ("site-0", "site-1")


def run_of(plan: FederationPlan) -> dict[str, Any]:
    return {
        "plan": plan.model_dump(mode="json"), "sites": list(SITES), "first_base": FIRST,
        "first_round": 1, "base": FIRST, "round_limit_s": 60.0,
    }  # fmt: skip


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveRounds]:
    with LiveRounds(tmp_path_factory.mktemp("live"), SITES) as running:
        yield running


@pytest.fixture
def server(live: LiveRounds) -> RoundsServer:
    live.server.stop()
    return live.server


PLAN = make_plan("fedavg", {}, rounds=2)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("base", "../../key.pem"),
        ("first_base", "/etc/passwd"),
        ("sites", ["site-0", "../site-1"]),
        ("first_round", 0),
        ("round_limit_s", 1e12),
        ("plan", {"method": "fedavg", "rounds": 1, "code": "x"}),
        ("more", 1),
    ],
)
def test_runs_with_other_facts_are_refused(server: RoundsServer, name: str, value: Any) -> None:
    with pytest.raises(InvalidInputError, match=name if name != "plan" else "code"):
        server.start({**run_of(PLAN), name: value})


def test_rounds_are_stopped_and_go_on_and_others_wait(server: RoundsServer) -> None:
    with pytest.raises(InvalidInputError, match="has not been uploaded"):
        server.start(run_of(PLAN))
    server.upload(encode_model(NETWORK), is_state=False)
    for _ in range(2):
        server.start(run_of(PLAN))
        server.start(run_of(PLAN))
        assert server.status()["state"] == "running"
        with pytest.raises(ConflictError, match="at work on other rounds"):
            server.start(run_of(make_plan("median", {}, rounds=2)))
        server.stop()
        assert server.status()["stopped"]


def test_a_site_cannot_act_as_the_submitter(live: LiveRounds) -> None:
    with ServiceConnection(live.kit("site-0"), "server", patience_s=0) as connection:
        for method, path in (
            ("POST", "/start"),
            ("PUT", "/start/base"),
            ("POST", "/stop"),
            ("GET", "/results/1/network"),
        ):
            with pytest.raises(FederationError, match="the caller is a site"):
                connection.call(method, path, b"{}")
    with (
        ServiceConnection(live.kit("submit"), "server", patience_s=0) as connection,
        pytest.raises(FederationError, match="expected a site"),
    ):
        connection.get_json("/task")
