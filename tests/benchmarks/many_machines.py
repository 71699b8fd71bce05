"""Hold a study and a batch by each engine: two processes, Dask, two shares, an array of SLURM.

    python -m tests.benchmarks.many_machines [--videos N] [--seconds S] [--faces N] [--repeats N]
        [--folder FOLDER] [--only study|batch]

`study landmarks` of six sites with drawn faces, and `blink batch` of drawn videos, each with two
jobs at once. The engines take turns; the times are medians, and the start of a cluster is not among
them.
"""

import argparse
import contextlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from site_agent.datasets.synthetic.sites import write_face_dataset
from site_agent.datasets.synthetic.videos import write_blink_video
from site_agent.work.processes import stop
from tests.slurm_cluster import is_there, slurm_cluster

POOLCTL = [sys.executable, "-m", "cli"]
DASK = [sys.executable, "-m", "dask"]
SCHEDULER = "tcp://127.0.0.1:18787"


def main() -> None:
    """Run the benchmark and print the times of each engine."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--videos", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each video")
    parser.add_argument("--faces", type=int, default=60)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="keeps the data for another time")
    parser.add_argument("--only", choices=["study", "batch"], default="")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        data = options.folder or folder / "data"
        works = {
            title: work for title, work in _works(data, options).items() if options.only in title
        }
        engines: dict[str, Callable[[list[str]], None]] = {
            "local 2": lambda work: _run([*work, "--workers", "2"]),
            "dask 2": lambda work: _run([*work, "--workers", SCHEDULER]),
            "2 shares": _shares,
        }
        _start_dask(stack)
        if is_there():
            cluster = stack.enter_context(slurm_cluster(folder / "slurm"))

            def array(work: list[str]) -> None:
                script = folder / "job.sbatch"
                parts = [*work, "--workers", "1", "--share", "auto"]
                script.write_text(f"#!/bin/bash\n#SBATCH --array=1-2\n{' '.join(parts)}\n")
                cluster.submit(script, folder)

            engines["SLURM array of 2"] = array
        times: dict[tuple[str, str], list[float]] = {}
        for _ in range(options.repeats):
            for title, work in works.items():
                for engine, run in engines.items():
                    output = folder / "output"
                    began_s = time.monotonic()
                    run([*work, "-o", str(output)])
                    times.setdefault((title, engine), []).append(time.monotonic() - began_s)
                    print(f"{title}, {engine}: {times[title, engine][-1]:.1f} s", flush=True)
                    shutil.rmtree(output)
    for title in works:
        base_s = statistics.median(times[title, "local 2"])
        for engine in engines:
            median_s = statistics.median(times[title, engine])
            print(
                f"{title:28} {engine:18} {median_s:7.1f} s  {100 * (median_s / base_s - 1):+.0f} %"
            )


def _works(folder: Path, options: argparse.Namespace) -> dict[str, list[str]]:
    """Draw the data; return the commands of both works without engine and output."""
    size = (240, 240)
    videos, model = folder / "videos", str(folder / "eyes.dat")
    faces, test = folder / "faces" / "faces.xml", folder / "test" / "faces.xml"
    if not folder.exists():
        count = options.faces
        write_face_dataset(faces.parent, count, count, 1, image_size=size)
        write_face_dataset(test.parent, 12, 12, 2, image_size=size, first_person=900)
        videos.mkdir()
        for number in range(options.videos):
            write_blink_video(
                videos / f"v{number:02}.mp4", options.seconds, 30.0, seed=number, size=(320, 240)
            )
        _run([*POOLCTL, "train", "starter", "-o", model])
    study = [*POOLCTL, "study", "landmarks", str(faces), "--set", f"test={test}"]
    study += ["--set", "sites=6", "--set", "orders=1"]
    return {
        "study landmarks, six sites": study,
        f"batch of {len(list(videos.glob('*.mp4')))} videos": [
            *POOLCTL, "blink", "batch", str(videos), "--landmarks", model,
        ],
    }  # fmt: skip


def _run(command: Sequence[str]) -> None:
    subprocess.run([*command, "--no-progress"], check=True, stdout=subprocess.DEVNULL)


def _shares(work: list[str]) -> None:
    shares = [
        subprocess.Popen(
            [*work, "--workers", "1", "--share", f"{number}/2", "--no-progress"],
            stdout=subprocess.DEVNULL,
        )
        for number in (1, 2)
    ]
    codes = [share.wait() for share in shares]
    if any(codes):
        raise SystemExit("a share failed")


def _start_dask(stack: contextlib.ExitStack) -> None:
    port = SCHEDULER.rpartition(":")[2]
    scheduler = [*DASK, "scheduler", "--host", "127.0.0.1", "--port", port]
    for command in (scheduler, *[[*DASK, "worker", SCHEDULER, "--nthreads", "1"]] * 2):
        process = subprocess.Popen(
            [*command, "--no-dashboard"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        stack.callback(stop, process, grace_s=10.0)


if __name__ == "__main__":
    main()
