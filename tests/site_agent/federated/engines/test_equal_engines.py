"""A federation by workers, through a pool, and after kills: equal digests."""

import json
import os
import random
import signal
import subprocess
import time
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from aggregators import write_model
from aggregators.errors import SiteOnlyError, UnknownFormatError
from aggregators.methods.merging import encode_input
from site_agent.errors import PoolRefusedFileError
from site_agent.federated.contribution_ledger import ContributionLedger
from site_agent.federated.engines.simulation_folder import divide, open_run
from site_agent.federated.engines.simulator import simulate, simulator_workers
from site_agent.federated.in_process import run_rounds
from site_agent.federated.personal import (
    PersonalPart,
    PersonalStore,
    assemble,
    newest_parts,
    read_part,
    site_only,
)
from site_agent.federated.plan import FederationPlan, make_plan
from site_agent.federated.tasks import GazeTask
from site_agent.networks.modules import new_network
from site_agent.pool.cache import ModelCache
from site_agent.pool.client import PoolClient
from site_agent.rounds.contract import ContributionRules, DataChoice
from site_agent.rounds.contributing import prepare_contribution
from site_agent.rounds.finishing import finish_round
from tests.cli.conftest import start_process
from tests.site_agent.datasets.gaze.made import folder_of, samples_of
from tests.site_agent.live_pool import live_pool

SITES = ("site-a", "site-b")

# A method with a state, one that keeps a part at home, and one that answers each site.
PLANS = (
    make_plan("fedadam", {"batch_size": 8, "seed": 5, "eta": 0.0005, "mean": "sites"}, rounds=2),
    make_plan("fedper", {"batch_size": 8, "seed": 5}, rounds=2),
    make_plan("fedpac", {"batch_size": 8, "seed": 5}, rounds=2),
)

Digests = list[tuple[str, str | None, dict[str, str]]]

"""Of each round: the network, the state, and the sites' updates."""


@pytest.fixture(scope="module")
def gaze(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gaze")
    return folder_of(folder, *(samples_of(site, 16, seed) for seed, site in enumerate(SITES)))


@pytest.fixture(scope="module")
def simulated(gaze: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Digests]]:
    """Hold the rounds of all plans with a process for each site; return the base, too."""
    data = divide(gaze, GazeTask(), holdout="none")
    run_folder = tmp_path_factory.mktemp("simulated") / "run"
    with (
        open_run(run_folder, data, new_network("gaze-lenet", 5)) as run,
        simulator_workers(len(SITES)) as workers,
    ):
        runs = [simulate(plan, run, data, workers).rounds for plan in PLANS]
        digests = [
            [(entry.result, entry.state, dict(entry.updates)) for entry in rounds]
            for rounds in runs
        ]
        return run.base, digests


def through_pool(
    sites: dict[str, PoolClient], base: str, plan: FederationPlan, gaze: Path
) -> Digests:
    """Hold the rounds of a plan through a pool, and return the digests of each."""
    first = sites["site-a"]
    key = first.rounds.start(
        base,
        SITES,
        datetime.now(UTC) + timedelta(hours=1),
        method=plan.method,
        options=plan.options,
        rounds=plan.rounds,
    ).round_id
    rules = ContributionRules(trusted=frozenset(SITES), least_others=1)
    digests: Digests = []
    while key:
        sent = {
            site: prepare_contribution(
                pool, key, gaze, DataChoice(persons=(site,)), site=site, rules=rules
            )
            .send()
            .digest
            for site, pool in sites.items()
        }
        ended = finish_round(first, key, upload_to=f"site-a/{plan.method}").round
        if not ended.successor:
            # The others look at what has become of it.
            assert not finish_round(sites["site-b"], key).ended_here
        assert ended.result_digest is not None
        digests.append((ended.result_digest, ended.state_digest, sent))
        key = ended.successor or ""
    return digests


def assert_same_part(one: PersonalPart, other: PersonalPart) -> None:
    assert one.prototypes is not None
    assert other.prototypes is not None
    assert one.prototypes.tobytes() == other.prototypes.tobytes()
    for name, values in one.values.items():
        assert values.tobytes() == other.values[name].tobytes()


@pytest.mark.slow
def test_simulator_and_pool_give_equal_digests_of_every_update_state_and_network(
    simulated: tuple[Path, list[Digests]],
    gaze: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("POOL_HOME", str(tmp_path / "home"))
    # Real sites draw the order of samples from a secret, simulated ones from the plan.
    monkeypatch.setattr(ContributionLedger, "order_seed", lambda *_: None)
    base, expected = simulated
    with live_pool(tmp_path / "pool") as pool, ExitStack() as stack:
        sites = {
            site: stack.enter_context(
                PoolClient(pool.url, pool.tokens[site], cache=ModelCache(tmp_path / site))
            )
            for site in SITES
        }
        address = str(sites["site-a"].upload(base, "site-a/base").version.address)
        for plan, digests in zip(PLANS, expected, strict=True):
            held = through_pool(sites, address, plan, gaze)
            assert len(held) == plan.rounds
            assert held == digests
        parts_ = newest_parts(tmp_path / "home" / "personal")
        parts = [read_part(path) for paths in parts_.values() for path in paths]
        assert sorted((part.method, part.site, part.round_number) for part in parts) == [
            (method, site, 2) for method in ("fedpac", "fedper") for site in SITES
        ]
        # Also those of the last round, which no next round asks for.
        for part in parts:
            if part.method == "fedpac":
                store = PersonalStore(base.parent / "fedpac" / "personal")
                simulated_part = store.newest(part.site)
                assert simulated_part is not None
                assert_same_part(part, simulated_part)
        # Personal parts are nowhere in the pool's storage and database.
        marks = [
            part.values["fc2.weight"].tobytes()[:64] for part in parts if part.method == "fedper"
        ]
        stored = [path for path in (tmp_path / "pool").rglob("*") if path.is_file()]
        assert len(stored) > 20
        for path in stored:
            content = path.read_bytes()
            assert not any(mark in content for mark in marks), path
        whole = tmp_path / "mine.safetensors"
        write_model(site_only(assemble(new_network("gaze-lenet", 5), parts[0])), whole)
        with pytest.raises(SiteOnlyError, match="stays at its site"):
            sites["site-a"].upload(whole, "site-a/mine")
        for paths in parts_.values():
            with pytest.raises(UnknownFormatError, match="a personal part"):
                sites["site-a"].upload(paths[0], "site-a/mine")
        # A program that does not look for the mark gets no further.
        monkeypatch.setattr("site_agent.pool.client.refuse_site_only", lambda _file: None)
        with pytest.raises(PoolRefusedFileError, match="site-only"):
            sites["site-a"].upload(whole, "site-a/mine")


def test_memory_gives_the_digests_and_parts_of_the_simulator(
    simulated: tuple[Path, list[Digests]], gaze: Path
) -> None:
    base, expected = simulated
    task, plan = GazeTask(), PLANS[-1]
    samples = {site: task.read(gaze, (site,)) for site in SITES}
    held = list(run_rounds(new_network("gaze-lenet", 5), samples, plan))
    digests = []
    for round_ in held:
        assert round_.model.state is not None
        state = sha256(encode_input(round_.model.state)).hexdigest()
        digests.append((round_.model.digest, state, dict(round_.update_digests)))
    assert digests == expected[-1]
    for site, part in held[-1].parts.items():
        kept = PersonalStore(base.parent / plan.method / "personal").newest(site)
        assert kept is not None
        assert_same_part(part, kept)


OPTIONS = {"batch_size": "8", "eta": "0.0005"}


class Federation:
    """A simulation by the command, as processes."""

    def __init__(self, folder: Path, sites: int, rounds: int) -> None:
        self.place, self.rounds = folder / "run", rounds
        names = [f"p{number}" for number in range(sites)]
        self.table = folder_of(
            folder / "gaze", *(samples_of(name, 12, seed) for seed, name in enumerate(names))
        )
        self.base = folder / "base.safetensors"
        write_model(new_network("gaze-lenet"), self.base)

    def start(self) -> subprocess.Popen[str]:
        options = [word for item in OPTIONS.items() for word in ("--option", "=".join(item))]
        return start_process(
            "federated", "simulate", self.table, "--method", "fedadam", "--base", self.base,
            "--rounds", self.rounds, "--holdout", "none", "--workers", 1, "-o", self.place,
            *options,
        )  # fmt: skip

    def kill(self, draw: random.Random) -> None:
        """Start it, and kill one of its processes some files later."""
        process, before = self.start(), self._files()
        new: set[Path] = set()
        some = draw.randint(1, 6)
        while len(new) < some and process.poll() is None:
            new |= self._files() - before
            time.sleep(0.002)
        time.sleep(draw.random() * 0.2)
        if process.poll() is None:
            os.kill(draw.choice([process.pid, *_children(process.pid)]), signal.SIGKILL)
        process.communicate(timeout=540)

    def finish(self) -> list[tuple[str, dict[str, str]]]:
        """Have it go on to its end; return the digests of its networks and updates."""
        process = self.start()
        _, printed = process.communicate(timeout=540)
        assert process.returncode == 0, printed
        content: Any = json.loads((self.place / "fedadam/history.json").read_text())
        return [(entry["result"], entry["updates"]) for entry in content["rounds"]]

    def in_memory(self) -> list[tuple[str, dict[str, str]]]:
        sites = divide(self.table, GazeTask(), holdout="none").sites
        plan = make_plan("fedadam", OPTIONS, rounds=self.rounds)
        samples = {name: site.read() for name, site in sites.items()}
        held = run_rounds(new_network("gaze-lenet"), samples, plan)
        return [(round_.model.digest, dict(round_.update_digests)) for round_ in held]

    def _files(self) -> set[Path]:
        return {path for path in self.place.rglob("*") if not path.name.endswith(".partial")}


def _children(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


@pytest.mark.slow
def test_simulations_that_are_killed_20_times_give_the_same_digests(tmp_path: Path) -> None:
    draw = random.Random(4)
    for number in range(4):
        (tmp_path / str(number)).mkdir()
        federation = Federation(tmp_path / str(number), sites=3, rounds=5)
        for _ in range(5):
            federation.kill(draw)
        assert federation.finish() == federation.in_memory()
        left = {path.name for path in (federation.place / "fedadam").iterdir()}
        assert not any(name.endswith(".partial") for name in left)
        states = [name for name in left if name.endswith(".state")]
        assert states == ["round-005.safetensors.state"]
        assert not (federation.place / "fedadam/round-005").exists()


class _StoppedError(Exception):
    pass


def test_a_round_with_personal_parts_goes_on_after_the_sites_that_have_trained(
    tmp_path: Path,
) -> None:
    sites = [samples_of(name, 12, seed) for seed, name in enumerate(("p0", "p1"))]
    data = divide(folder_of(tmp_path / "gaze", *sites), GazeTask(), holdout="none")
    plan = make_plan("fedcpf", {"batch_size": 8, "acc": 0.01}, rounds=2)
    base = new_network("gaze-lenet")

    def stop(_share: float | None, text: str) -> None:
        if "round 2" in text and "1 of 2" in text:
            raise _StoppedError

    held_rounds = []
    with simulator_workers(2) as workers, open_run(tmp_path / "stopped", data, base) as run:
        with pytest.raises(_StoppedError):
            simulate(plan, run, data, workers, stop)
        assert list((tmp_path / "stopped" / "fedcpf" / "personal").rglob("*002.safetensors"))
    with simulator_workers(2) as workers:
        for name in ("stopped", "whole"):
            with open_run(tmp_path / name, data, base) as run:
                rounds = simulate(plan, run, data, workers).rounds
                held_rounds.append(
                    [(entry.result, entry.updates, entry.personal_share) for entry in rounds]
                )
    assert held_rounds[0] == held_rounds[1]
    assert all(held_rounds[0][-1][2].values()), "both sites keep a part"
