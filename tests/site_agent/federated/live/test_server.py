"""The server of live rounds holds one plan in a folder, and answers its sites alone."""

from pathlib import Path

import pytest

from site_agent.errors import BusyError, FederationError, InvalidInputError
from site_agent.federated.live.rounds_folder import RoundReport
from site_agent.federated.live.server import serving
from site_agent.federated.plan import make_plan
from site_agent.live.connection import ServiceConnection
from site_agent.networks.modules import new_network
from site_agent.work import no_progress
from tests.site_agent.federated.live.live_rounds import LiveRounds

NETWORK, OTHER = new_network("gaze-lenet", 1), new_network("gaze-lenet", 2)
PLAN = make_plan("fedavg", {}, rounds=1)


@pytest.fixture
def live(tmp_path: Path) -> LiveRounds:
    return LiveRounds(tmp_path, ("site-0", "site-1"))


def test_a_folder_keeps_its_plan_base_and_reports(live: LiveRounds) -> None:
    rounds = live.server(PLAN, NETWORK).rounds
    report = RoundReport(1, {"site-0": "0" * 64}, ("site-1",), "1" * 64, 0.5, ("few",))
    rounds.add(report)
    server = live.server(PLAN, NETWORK)
    assert server.rounds.reports == [report]
    shown: list[RoundReport] = []
    server.hold(progress=no_progress, on_round=shown.append)
    assert shown == [report]
    assert server.status()["finished"]
    with pytest.raises(InvalidInputError, match="rounds of another plan or base"):
        live.server(PLAN, OTHER)


def test_a_server_asks_sites_alone_and_takes_no_place_of_another(live: LiveRounds) -> None:
    kit, server = live.kit("server"), live.server(PLAN, NETWORK)
    with serving(kit, server), ServiceConnection(kit, "server", patience_s=0) as connection:
        assert connection.get_json("/status")["round"] == 1
        with pytest.raises(FederationError, match="expected a site"):
            connection.get_json("/task")
        with (
            pytest.raises(BusyError, match="cannot listen"),
            serving(kit, live.server(PLAN, NETWORK)),
        ):
            pass


def test_a_kit_says_that_its_certificate_has_expired(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("site_agent.live.kits._CERTIFICATE_DAYS", -0.01)
    live = LiveRounds(tmp_path, ["site-a", "site-b"])
    for context in (live.kit("site-a").client_context, live.kit("server").server_context):
        with pytest.raises(InvalidInputError, match=r"certificate.pem: was valid until 20"):
            context()
