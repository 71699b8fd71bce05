"""Rounds of a network give the same digests if sites and pool are killed at random moments."""

import random
import signal
import threading
import time
from contextlib import ExitStack, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from aggregators.formats import write_model
from site_agent import ModelCache, PoolClient
from site_agent.datasets.gaze.check import open_gaze
from site_agent.datasets.gaze.generic_layout import write_samples
from site_agent.errors import PoolClientError
from site_agent.federated.contribution_ledger import ContributionLedger
from site_agent.federated.in_process import run_rounds
from site_agent.federated.plan import make_plan
from site_agent.networks.modules import new_network
from site_agent.rounds.contract import ContributionRules
from site_agent.rounds.contributing import prepare_contribution
from site_agent.rounds.finishing import finish_round
from tests.cli.conftest import run_process, start_process
from tests.pool_server.pool_driver import pool_process
from tests.pool_server.server_process import ServerProcess
from tests.site_agent.federated.small_sites import samples_at
from tests.site_agent.live_pool import UnreliableLine

SITES = ("site-a", "site-b")
OPTIONS = {"epochs": 2, "batch_size": 8}


class Federation:
    """A pool in a process that can be killed, and two sites with gaze data."""

    def __init__(self, folder: Path, stack: ExitStack, seed: int) -> None:
        self.folder, self.stack, self.random = folder, stack, random.Random(seed)
        self.run_s = 4.0
        server, url, secret = stack.enter_context(pool_process(folder / "pool"))
        assert secret is not None
        self.server: ServerProcess = server
        self.line = stack.enter_context(UnreliableLine(url))
        self.clients: dict[str, PoolClient] = {}
        self.environments: dict[str, dict[str, str]] = {}
        with PoolClient(url, secret, cache=ModelCache(folder / "no-cache")) as admin:
            for number, site in enumerate(SITES):
                admin.sites.create(site)
                token = admin.tokens.create(site, "laptop").secret
                cache = ModelCache(folder / f"cache-{site}")
                self.clients[site] = stack.enter_context(
                    PoolClient(self.line.url, token, cache=cache)
                )
                self.environments[site] = {"POOL_ENDPOINT": self.line.url, "POOL_TOKEN": token}
                write_samples(folder / site, [samples_at(number)])

    def contribute(self, key: str, site: str) -> str:
        rules = ContributionRules(trusted=frozenset(SITES), least_others=1)
        data = self.folder / site
        return prepare_contribution(self.clients[site], key, data, rules=rules).send().digest

    def contribute_killed(self, key: str, site: str) -> str:
        """Kill a contributing process at some moment, and let another go on."""
        command = ("rounds", "contribute", key, "--data", self.folder / site, "--json",
                 "--least-others", "1")  # fmt: skip
        process = start_process(*command, **self.environments[site])
        with suppress(Exception):
            process.wait(self.random.uniform(0, self.run_s))
        process.kill()
        process.communicate()
        began_s = time.monotonic()
        contribution = run_process(*command, **self.environments[site]).data
        if contribution["computed"]:
            self.run_s = time.monotonic() - began_s
        return str(contribution["digest"])

    def finish_killed(self, key: str) -> None:
        """Kill the pool at some moment while it combines, and start it again."""

        def finish() -> None:
            with suppress(PoolClientError):
                finish_round(self.clients["site-a"], key)

        thread = threading.Thread(target=finish)
        thread.start()
        time.sleep(self.random.uniform(0, 1.5))
        self.server.send_signal(signal.SIGKILL)
        self.server.wait()
        self.server, url, _ = self.stack.enter_context(pool_process(self.folder / "pool"))
        self.line.turn_to(url)
        thread.join()


@pytest.mark.parametrize(
    ("rounds", "kills"),
    [
        pytest.param(2, ({"site"}, {"pool"}), id="twice", marks=pytest.mark.slow),
        pytest.param(
            10,
            ({"site", "pool"},) * 10,
            id="20 times",
            marks=[pytest.mark.slow, pytest.mark.timeout(1800)],
        ),
    ],
)
def test_killed_at_random_moments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rounds: int, kills: tuple[set[str], ...]
) -> None:
    # Processes of one home draw the order of samples from the same secret.
    monkeypatch.setenv("POOL_HOME", str(tmp_path / "home"))
    ledger, key = ContributionLedger(tmp_path / "home" / "rounds"), ""

    def order(site: str, digest: str) -> int:
        return ledger.order_seed(site, key, digest)

    network = new_network("gaze-lenet")
    base = tmp_path / "base.safetensors"
    write_model(network, base)
    with ExitStack() as stack:
        federation = Federation(tmp_path, stack, seed=rounds)
        samples = {site: open_gaze(tmp_path / site).read() for site in SITES}
        first = federation.clients["site-a"]
        first.upload(base, "site-a/gaze")
        key = first.rounds.start(
            "site-a/gaze", SITES, datetime.now(UTC) + timedelta(days=1),
            method="fedadam", options=OPTIONS, rounds=rounds,
        ).round_id  # fmt: skip
        plan = make_plan("fedadam", OPTIONS, rounds=rounds)
        held_rounds = run_rounds(network, samples, plan, order=order)
        for killed, held in zip(kills, held_rounds, strict=True):
            contribute = federation.contribute_killed if "site" in killed else federation.contribute
            assert contribute(key, "site-a") == held.update_digests["site-a"]
            assert federation.contribute(key, "site-b") == held.update_digests["site-b"]
            if "pool" in killed:
                federation.finish_killed(key)
            ended = finish_round(first, key).round
            assert ended.result_digest == held.model.digest
            assert ended.state_digest is not None
            key = ended.successor or ""
        assert key == ""
