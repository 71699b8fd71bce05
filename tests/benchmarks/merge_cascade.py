"""Time a cascade merge of landmark models of the papers' size, from files to a file.

    python -m tests.benchmarks.merge_cascade [--models N] [--thin T] [--format NAME]

Makes the sub-models (six by default, about 130 MB each) in a temporary folder. A process of its
own then merges them with `aggregators.merge`, its peak resident memory is taken, and another one
reads the same files with dlib. The limits are 30 seconds and 6 GB.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

from aggregators import merge, write_model
from tests.benchmarks.paper_size import make_paper_size_predictor

MOST_SECONDS, MOST_BYTES = 30.0, 6e9


def main() -> None:
    """Run the benchmark, or (with --child) the part of it that is measured."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", type=int, default=6, help="number of sub-models (default 6)")
    parser.add_argument("--thin", type=int, help="keep this many trees per level")
    parser.add_argument("--format", default="dlib-shape-predictor", help="format of the result")
    parser.add_argument("--child", choices=("merge", "dlib"), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(_measured(arguments)))
        return
    with tempfile.TemporaryDirectory(prefix="poolctl-benchmark-") as folder:
        _compare(Path(folder), arguments.models, sys.argv[1:])


def _measured(arguments: argparse.Namespace) -> dict[str, float]:
    inputs = sorted(arguments.folder.glob("sub-model-*.dat"))
    start = perf_counter()
    if arguments.child == "dlib":
        import dlib

        for path in inputs:
            dlib.shape_predictor(str(path))
    else:
        merge(
            "wba-cascade",
            inputs,
            options={"thin": arguments.thin},
            output=arguments.folder / "merged.dat",
            output_format=arguments.format,
        )
    seconds = perf_counter() - start
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"seconds": seconds, "peak_bytes": peak_bytes}


def _compare(folder: Path, model_count: int, options: list[str]) -> None:
    for seed in range(model_count):
        write_model(make_paper_size_predictor(seed), folder / f"sub-model-{seed}.dat")
    sizes = [path.stat().st_size for path in folder.glob("*.dat")]
    print(f"{model_count} sub-models, {sum(sizes) / 1e6:.0f} MB together")
    ours = _in_child("merge", folder, options)
    dlib = _in_child("dlib", folder, options)
    merged = folder / "merged.dat"
    print(f"merged file: {merged.stat().st_size / 1e6:.0f} MB")
    print(f"read, merge and write: {ours['seconds']:.1f} s (limit {MOST_SECONDS:.0f})")
    print(f"peak memory: {ours['peak_bytes'] / 1e9:.2f} GB (limit {MOST_BYTES / 1e9:.0f})")
    print(f"dlib reading the same files: {dlib['seconds']:.1f} s")
    print(f"ratio: {ours['seconds'] / dlib['seconds']:.2f}")
    kept = ours["seconds"] < MOST_SECONDS and ours["peak_bytes"] < MOST_BYTES
    print("within the limits" if kept else "BEYOND THE LIMITS")
    sys.exit(0 if kept else 1)


def _in_child(task: str, folder: Path, options: list[str]) -> dict[str, Any]:
    """Run one part in a process of its own, so that its peak memory is its own."""
    command = [sys.executable, "-m", "tests.benchmarks.merge_cascade", *options]
    result = subprocess.run(
        [*command, "--child", task, "--folder", folder],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    measured: dict[str, Any] = json.loads(result.stdout)
    return measured


if __name__ == "__main__":
    main()
