"""Time one site's contribution to a round of leaf refinement of the papers' size.

    python -m tests.benchmarks.refine [--faces N] [--starts N] [--members N] [--threads N]

201 faces with 20 starting shapes each, and a merge of six sub-models of 10 levels with 500 trees
of 68 landmarks. A process of its own makes the contribution and writes it to a file; its peak
resident memory counts everything, the base and the faces too. The limits are 60 seconds and 2 GB.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

import numpy as np

from aggregators import merge, read_model, write_model
from aggregators.methods.refitting import RefitSettings, SiteFaces, contribute, write_contribution
from aggregators.models import ShapePredictor
from tests.benchmarks.paper_size import make_paper_size_predictor

MOST_SECONDS, MOST_BYTES = 60.0, 2e9


def main() -> None:
    """Run the benchmark, or (with --child) the part of it that is measured."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--faces", type=int, default=201)
    parser.add_argument("--starts", type=int, default=20)
    parser.add_argument("--members", type=int, default=6, help="sub-models in the base")
    parser.add_argument("--threads", type=int, default=0, help="0: as many as processors")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(_measured(arguments)))
        return
    with tempfile.TemporaryDirectory(prefix="poolctl-benchmark-") as folder:
        members = [make_paper_size_predictor(seed) for seed in range(arguments.members)]
        base = merge("wba-cascade", members, options={"step": 1.1}).model
        write_model(base, Path(folder) / "base.forest")
        del members, base
        result = subprocess.run(
            [sys.executable, "-m", "tests.benchmarks.refine", *sys.argv[1:], "--child", folder],
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
    measured = json.loads(result.stdout)
    print(f"{measured['samples']} samples, {measured['trees']} trees")
    print(f"contribution: {measured['fit_s']:.1f} s (limit {MOST_SECONDS:.0f})")
    print(f"compiling, once an installation: {measured['compile_s']:.1f} s")
    print(f"writing {measured['file_bytes'] / 1e6:.0f} MB: {measured['write_s']:.1f} s")
    print(f"peak memory: {measured['peak_bytes'] / 1e9:.2f} GB (limit {MOST_BYTES / 1e9:.0f})")
    kept = measured["fit_s"] < MOST_SECONDS and measured["peak_bytes"] < MOST_BYTES
    print("within the limits" if kept else "BEYOND THE LIMITS")
    sys.exit(0 if kept else 1)


def _measured(arguments: argparse.Namespace) -> dict[str, float]:
    settings = RefitSettings(starts=arguments.starts, nu=0.02)
    started = perf_counter()
    contribute(make_paper_size_predictor(0, levels=1, trees=2, depth=2), _faces(2), settings)
    compiled = perf_counter()
    base = read_model(arguments.child / "base.forest")
    assert isinstance(base, ShapePredictor)
    faces = _faces(arguments.faces)
    begun = perf_counter()
    contribution = contribute(base, faces, settings, threads=arguments.threads)
    fitted = perf_counter()
    path = arguments.child / "site.contribution"
    write_contribution(contribution, path)
    return {
        "samples": arguments.faces * arguments.starts,
        "trees": base.tree_count,
        "compile_s": compiled - started,
        "fit_s": fitted - begun,
        "write_s": perf_counter() - fitted,
        "file_bytes": path.stat().st_size,
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def _faces(count: int) -> SiteFaces:
    """Return noise with landmarks in it: the time does not depend on the content of the images."""
    random = np.random.default_rng(1)
    images = [random.integers(0, 256, (400, 400), dtype=np.uint8) for _ in range(count)]
    points = random.uniform(120, 280, (count, 68, 2))
    return SiteFaces.from_arrays(images, np.tile([100.0, 100, 299, 299], (count, 1)), points)


if __name__ == "__main__":
    main()
