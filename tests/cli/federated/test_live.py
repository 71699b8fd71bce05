"""Live rounds as users start them: a server and sites as processes, with mutual TLS."""

import json
import signal
from pathlib import Path

import pytest

from aggregators import write_model
from site_agent.federated.personal import newest_parts, read_part
from site_agent.networks.modules import new_network
from site_agent.pool.profiles import personal_folder
from tests.cli.conftest import Outcome, run_here, run_process, start_process
from tests.cli.federated.live_federation import LiveFederation, digests_of, live_federation
from tests.waiting import wait_until


def test_live_rounds_have_the_digests_of_rounds_in_one_process(tmp_path: Path) -> None:
    with live_federation(tmp_path, 3, ("fedpac", 2)) as federation:
        *honest, last = federation.sites
        federation.start(*honest)
        federation.start_hostile(last, "nan", "garbage")
        outcome = run_here(*federation.serving("fedpac", 2, "--round-limit-s", 540))
        require_that_the_last_site_is_left_out_and_named(outcome, federation.sites)
        require_replies_for_each_site(federation, honest, outcome, tmp_path / "home" / "personal")
        assert not (federation.folder / "fedpac" / "contributions").exists()


def require_that_the_last_site_is_left_out_and_named(outcome: Outcome, sites: list[str]) -> None:
    *honest, last = sites
    rounds = outcome.data["rounds"]
    assert [sorted(round_["updates"]) for round_ in rounds] == [honest] * 2
    assert [round_["missing"] for round_ in rounds] == [[last]] * 2
    reasons = [round_["left_out"][last] for round_ in rounds]
    assert "holds infinities or NaN" in reasons[0]
    assert "expected" in reasons[1]
    assert f"without {last} (its contribution entry" in outcome.err


@pytest.mark.slow
def test_live_rounds_of_any_method_have_the_digests_of_rounds_in_one_process(
    tmp_path: Path,
) -> None:
    methods = ("fedadam", "fedcpf", "fedper")
    with live_federation(tmp_path, 2, *((name, 2) for name in methods)) as federation:
        federation.start(*federation.sites)
        for method in methods:
            outcome = run_process(*federation.serving(method, 2))
            assert digests_of(outcome) == federation.digests_in_one_process(method, 2)
        assert_personal_parts_stay(tmp_path)


def assert_personal_parts_stay(folder: Path) -> None:
    """Look for the heads that FedPer keeps at home in all that the processes have written."""
    newest = newest_parts(personal_folder())
    parts = [read_part(path) for paths in newest.values() for path in paths]
    assert sorted((part.method, part.site) for part in parts) == [
        (method, site) for method in ("fedcpf", "fedper") for site in ("site-0", "site-1")
    ]
    marks = [part.values["fc2.weight"].tobytes() for part in parts if part.method == "fedper"]
    personal = personal_folder()
    written = [path for path in folder.rglob("*") if path.is_file()]
    written = [path for path in written if not path.is_relative_to(personal)]
    assert len(written) > 20
    for path in written:
        content = path.read_bytes()
        assert not any(mark[:64] in content for mark in marks), path


def require_replies_for_each_site(
    federation: LiveFederation, honest: list[str], outcome: Outcome, personal: Path
) -> None:
    """Hold rounds of fedpac: each site has its own reply, and nobody else."""
    assert digests_of(outcome) == federation.digests_in_one_process("fedpac", 2, honest)
    assert not list((federation.folder / "fedpac").rglob("*.state"))
    parts = [read_part(path) for paths in newest_parts(personal).values() for path in paths]
    kept = {part.site: part for part in parts if part.method == "fedpac"}
    for site, part in federation.parts_in_one_process("fedpac", 2, honest).items():
        assert part.prototypes is not None
        assert kept[site].prototypes is not None
        assert kept[site].prototypes.tobytes() == part.prototypes.tobytes()
        assert kept[site].values["fc2.weight"].tobytes() == part.values["fc2.weight"].tobytes()


@pytest.mark.slow
def test_a_site_that_sends_too_much_is_left_out(tmp_path: Path) -> None:
    with live_federation(tmp_path, 3, ("fedavg", 1)) as federation:
        federation.start("site-0", "site-1")
        federation.start_hostile("site-2", "huge")
        outcome = run_process(*federation.serving("fedavg", 1, "--round-limit-s", 40))
        assert outcome.code == 0, outcome.err
    [only] = outcome.data["rounds"]
    assert (sorted(only["updates"]), only["missing"]) == (["site-0", "site-1"], ["site-2"])


@pytest.mark.slow
def test_sites_refuse_networks_that_they_did_not_name_and_sums_of_too_few(tmp_path: Path) -> None:
    plans = ("fedavg", 1), ("median", 1)
    with live_federation(tmp_path, 3, *plans, least_others=2) as federation:
        federation.start("site-0", "site-1")
        federation.start_hostile("site-2", "nan")
        alone = run_process(*federation.serving("fedavg", 1))
        write_model(new_network("gaze-lenet", 2), federation.base)
        other = run_process(*federation.serving("median", 1))
    assert "2 usable contributions, needed 3: site-0, site-1" in alone.error["message"]
    refused = "0 usable contributions, needed 2; site-0: refused: ContributionWithheldError"
    assert refused in other.error["message"]


@pytest.mark.slow
def test_rounds_go_on_after_the_server_was_killed(tmp_path: Path) -> None:
    plans = ("geometric-median", 3), ("fedadam", 3)
    with live_federation(tmp_path, 3, *plans) as federation:
        federation.start(*federation.sites)
        outcome = run_process(*federation.serving("geometric-median", 3))
        assert digests_of(outcome) == federation.digests_in_one_process("geometric-median", 3)
        arguments = federation.serving("fedadam", 3)
        killed = start_process(*arguments)
        wait_until((tmp_path / "fedadam" / "round-0001.safetensors").exists)
        killed.kill()
        killed.communicate()
        outcome = run_process(*arguments)
        assert digests_of(outcome) == federation.digests_in_one_process("fedadam", 3)


@pytest.mark.slow
def test_a_killed_site_takes_part_again_in_rounds_that_were_interrupted(tmp_path: Path) -> None:
    with live_federation(tmp_path, 4, ("fedadam", 6)) as federation:
        federation.start(*federation.sites)
        arguments = federation.serving("fedadam", 6)
        serving = start_process(*arguments)
        wait_until((tmp_path / "fedadam" / "round-0002.safetensors").exists)
        federation.kill("site-1")
        server = federation.kits / "server"
        wait_until(lambda: "site-1" in last_missing(server))
        serving.send_signal(signal.SIGTERM)
        serving.communicate(timeout=500)
        assert serving.returncode != 0
        reports = json.loads((tmp_path / "fedadam" / "rounds.json").read_text())
        federation.start("site-1")
        rounds = run_process(*arguments).data["rounds"]
    missing = {round_["number"]: round_["missing"] for round_ in rounds}
    assert list(missing) == list(range(1, 7))
    assert ["site-1"] in [missing[number] for number in range(1, len(reports) + 1)]


def last_missing(kit: Path) -> list[str]:
    """Return the sites that are missing in the last round."""
    shown = run_here("live", "status", kit, "--json")
    reports = shown.data["reports"] if shown.code == 0 else []
    names: list[str] = reports[-1]["missing"] if reports else []
    return names


@pytest.mark.slow
def test_a_site_of_another_federation_is_refused(tmp_path: Path) -> None:
    with live_federation(tmp_path, 2, ("fedavg", 1)) as federation:
        federation.processes["server"] = start_process(*federation.serving("fedavg", 1))
        wait_until(federation.is_served)
        federation.provision(tmp_path / "foreign", federation.port)
        arguments = [
            "federated",
            "site",
            tmp_path / "foreign" / "site-0",
            "--data",
            federation.data,
        ]
        refused = run_process(*arguments, "--base", federation.base, "--accept", "0" * 64)
        assert "CERTIFICATE_VERIFY_FAILED" in refused.err
        assert "is of another training" in refused.err
        federation.kill("server")
