"""A simulation resumes with the same digests after any of its processes is killed."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from aggregators import write_model
from site_agent.federated.engines.simulation_folder import divide, open_run
from site_agent.federated.engines.simulator import simulate, simulator_workers
from site_agent.federated.in_process import run_rounds
from site_agent.federated.plan import make_plan
from site_agent.federated.tasks import GazeTask
from site_agent.networks.modules import new_network
from tests.conftest import PROJECT_ROOT
from tests.site_agent.datasets.gaze.made import folder_of, samples_of

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
        arguments = [
            "federated",
            "simulate",
            self.table,
            "--method",
            "fedadam",
            "--base",
            self.base,
        ]
        arguments += ["--rounds", self.rounds, "--holdout", "none", "--workers", 1]
        arguments += ["-o", self.place, *options]
        return subprocess.Popen(
            [sys.executable, "-m", "cli", *map(str, arguments)],
            cwd=PROJECT_ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

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
