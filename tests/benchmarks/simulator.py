"""Simulate rounds by `poolctl federated simulate`, and by a plain loop of the same training.

    python -m tests.benchmarks.simulator [--sites N] [--rounds N] [--frames N] [--cohort C ...]

The loop trains and scores in one process and one thread, with everything in memory; the simulator
writes every network, contribution and history, and can be killed. Both are processes of their own,
measured one after the other: processor time with all children, wall time, and the largest sum of
memory (proportional set size, each second).

With cohorts it shows instead how a round of the simulator grows with them: by itself, without the
reading of the data, which is measured alone. `--data` keeps the drawn data for a next time.
"""

import argparse
import math
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from site_agent.datasets.synthetic.eye_patches.dataset import RenderSettings, write_eye_dataset
from site_agent.datasets.synthetic.eye_patches.persons import Skews

_LOOP = """
import sys
from pathlib import Path
from site_agent.federated.engines.simulation_folder import divide
from site_agent.federated.engines.simulation_folder import score_network
from site_agent.federated.tasks import GazeTask
from site_agent.federated.in_process import run_rounds
from site_agent.federated.plan import make_plan
from site_agent.networks.modules import new_network
data = divide(Path(sys.argv[1]), GazeTask())
sites = {site: each.read() for site, each in data.sites.items()}
plan = make_plan("fedavg", {"seed": 0}, rounds=int(sys.argv[2]))
for held in run_rounds(new_network("gaze-lenet", 0), sites, plan):
    score_network(held.model.network, data.held_out, data.task)
print(held.model.digest)
"""
_READING = """
import sys
from pathlib import Path
from site_agent.federated.engines.simulation_folder import divide
from site_agent.federated.tasks import GazeTask
divide(Path(sys.argv[1]), GazeTask(), holdout="none")
"""


def main() -> None:
    """Run the benchmark and print both figures and their ratios."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sites", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--frames", type=int, default=300, help="of each site")
    parser.add_argument("--cohort", type=float, action="append", default=[])
    parser.add_argument("--data", type=Path)
    arguments = parser.parse_args()
    rounds = str(arguments.rounds)
    with tempfile.TemporaryDirectory(prefix="poolctl-benchmark-") as folder:
        data = arguments.data or Path(folder) / "eyes"
        if not data.exists():
            settings = RenderSettings(
                persons=arguments.sites, frames_per_person=arguments.frames,
                skews=Skews(amount=1.0 if arguments.cohort else 20.0),
            )  # fmt: skip
            write_eye_dataset(data, settings)
        for cohort in arguments.cohort:
            _show_growth(data, arguments.sites, cohort, Path(folder) / f"{cohort:g}")
        if arguments.cohort:
            return
        loop = _measure([sys.executable, "-c", _LOOP, str(data), rounds])
        simulated = _measure(_simulate(data, Path(folder) / "run", "--rounds", rounds))
    print(f"plain loop: {_words(loop)}")
    print(f"simulator:  {_words(simulated)}")
    ratios = [mine / plain for mine, plain in zip(simulated, loop, strict=True)]
    print("ratio: processor {:.2f}, wall {:.2f}, memory {:.2f}".format(*ratios))


def _simulate(data: Path, output: Path, *options: str) -> list[str]:
    start = "from cli.frame.app import main; raise SystemExit(main())"
    command = [sys.executable, "-c", start, "federated", "simulate", str(data), "--no-progress"]
    return [*command, "--method", "fedavg", "-o", str(output), *options]


def _show_growth(data: Path, sites: int, cohort: float, output: Path) -> None:
    options = ("--rounds", "1", "--cohort", f"{cohort:g}", "--holdout", "none")
    read = _measure([sys.executable, "-c", _READING, str(data)])
    held = _measure(_simulate(data, output, *options))
    count = math.ceil(cohort * sites - 1e-9)
    times = held[0] - read[0], held[1] - read[1]
    print(
        f"{count:5} of {sites:5} sites: {times[0]:.1f} s of processor time ({times[0] / count:.2f} "
        f"a site), {times[1]:.1f} s, {held[2]:.0f} MB; reading alone {read[0]:.1f} s, "
        f"{read[2]:.0f} MB",
        flush=True,
    )


def _measure(command: Sequence[str]) -> tuple[float, float, float]:
    """Return processor seconds, wall seconds and megabytes of a command with its children."""
    before, began_s, peak = _processor_s(), time.monotonic(), 0.0
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    while process.poll() is None:
        peak = max(peak, sum(_memory_mb(pid) for pid in _family(process.pid)))
        time.sleep(1)
    if process.returncode:
        raise SystemExit(f"{' '.join(command[:4])} ended with code {process.returncode}")
    return _processor_s() - before, time.monotonic() - began_s, peak


def _processor_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _family(pid: int) -> Iterator[int]:
    yield pid
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except OSError:
        return
    for child in children.split():
        yield from _family(int(child))


def _memory_mb(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def _words(measured: tuple[float, float, float]) -> str:
    return "{:.1f} s of processor time, {:.1f} s, {:.0f} MB".format(*measured)


if __name__ == "__main__":
    main()
