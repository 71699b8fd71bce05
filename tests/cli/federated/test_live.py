"""Live rounds as users start them: a server and sites as processes, with mutual TLS."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path

import pytest

from site_agent.pool.client import PoolClient
from tests.cli.conftest import Outcome, run_process, start_process, wait_until
from tests.cli.federated.live_federation import digests_of, live_federation
from tests.site_agent.live_pool import live_pool


def test_live_rounds_have_the_digests_of_rounds_in_one_process(tmp_path: Path) -> None:
    with live_federation(tmp_path, 2) as federation:
        federation.start("server", *federation.sites)
        done = run_process(*federation.submission("fedadam", 2))
        assert digests_of(done) == federation.digests_in_one_process("fedadam", 2)


@pytest.mark.slow
def test_rounds_go_on_after_the_submitter_was_killed(tmp_path: Path) -> None:
    with live_federation(tmp_path, 3) as federation:
        federation.start("server", *federation.sites)
        done = run_process(*federation.submission("fedavg", 3))
        assert digests_of(done) == federation.digests_in_one_process("fedavg", 3)
        kept = federation.kits / "server" / "contributions"
        before = len(list(kept.iterdir()))
        words = federation.submission("fedadam", 3, "--block-rounds", 2)
        killed = start_process(*words)
        wait_until(lambda: len(list(kept.iterdir())) > before, 120)
        killed.kill()
        done = run_process(*words)
        assert digests_of(done) == federation.digests_in_one_process("fedadam", 3)


@pytest.mark.slow
def test_a_killed_site_takes_part_again_and_all_networks_reach_the_pool(tmp_path: Path) -> None:
    with live_pool(tmp_path / "pool") as pool, live_federation(tmp_path, 4) as federation:
        login = {"POOL_ENDPOINT": pool.url, "POOL_TOKEN": pool.tokens["site-a"]}
        with PoolClient(pool.url, pool.tokens["site-a"]) as client:
            client.upload(federation.base, "site-a/base")
        federation.start("server", *federation.sites)
        words = federation.submission("fedadam", 10, "--upload", "live")
        submitted = start_process(*words, **login)
        kept = federation.kits / "server" / "contributions"
        wait_until(lambda: any(kept.glob("*/round-0002")), 120)
        federation.kill("site-1")
        federation.start("site-1")
        out, err = submitted.communicate(timeout=500)
        rounds = Outcome(submitted.returncode, out, err).data["rounds"]
        with PoolClient(pool.url, pool.tokens["site-a"]) as client:
            versions = [client.version(each["address"]) for each in rounds]
            family = client.models.lineage(rounds[-1]["address"])
    missing = {each["number"]: each["missing"] for each in rounds}
    assert list(missing) == list(range(1, 11))
    assert missing[3] == ["site-1"]
    assert not any(names for number, names in missing.items() if number not in (3, 4))
    assert max(each["seconds"] for each in rounds) < 30
    assert [each.digest for each in versions] == [each["digest"] for each in rounds]
    known = {address for node in family.nodes for address in node.addresses}
    assert known == {"pool://site-a/base@1", *(f"pool://site-a/live@{n}" for n in range(1, 11))}


@pytest.mark.slow
def test_unknown_certificates_and_jobs_with_code_are_refused(tmp_path: Path) -> None:
    with live_federation(tmp_path, 2) as federation:
        federation.start("server", *federation.sites)
        federation.wait_for_sites()
        ours = federation.kits / "site-0" / "startup"
        assert is_served(federation.port, ours, ours)
        assert not is_served(federation.port, ours, None)
        federation.provision(tmp_path / "foreign", federation.port)
        foreign = tmp_path / "foreign" / "site-0"
        assert not is_served(federation.port, ours, foreign / "startup")
        stranger = start_process("federated", "site", foreign, "--data", federation.data)
        federation.processes["stranger"] = stranger
        assert stranger.stderr is not None
        told = [stranger.stderr.readline() for _ in range(2)]
        assert told[1] == "refused: the other side's certificate is not of this federation\n"
        assert federation.send_job("custom-code")["details"] == ["server: BYOC not permitted"]
        assert not federation.send_job("other-class")["status"].endswith("COMPLETED")
        logs = [*(federation.kits / "site-0").glob("*/log.txt")]
        assert any("'subprocess.Popen'" in log.read_text(encoding="utf-8") for log in logs)
        # A server that lets code pass.
        federation.stop("server")
        rules = federation.kits / "server/local/authorization.json"
        rules.write_text(rules.read_text().replace('"byoc": "none"', '"byoc": "any"'))
        federation.start("server")
        federation.wait_for_sites()
        details = federation.send_job("custom-code")["details"]
        assert details[0] == "server: OK"
        assert "site-0: NVFLARE_ERROR: BYOC not permitted" in details


def is_served(port: int, trusted: Path, own: Path | None) -> bool:
    """Tell whether the server talks to whoever has a certificate, or none."""
    context = ssl.create_default_context(cafile=trusted / "rootCA.pem")
    context.set_alpn_protocols(["h2"])
    if own is not None:
        context.load_cert_chain(own / "client.crt", own / "client.key")
    with socket.create_connection(("localhost", port), 10) as plain:
        try:
            with context.wrap_socket(plain, server_hostname="localhost") as secured:
                return bool(secured.recv(1))  # the settings with which HTTP/2 begins
        except (ssl.SSLError, ConnectionError):
            return False
