"""Time the methods for networks on large contributions, and take their peak memory.

    python -m tests.benchmarks.combine_networks [--sites N] [--method NAME ...] [--glc]

Makes a base and the contributions (50 by default) of a ResNet-18's size (45 MB), or with --glc of
glc-paper's (281 MB), in a temporary folder. A process of its own combines them by each method.
Its allocations (mapped files do not count) may not exceed two networks, however many sites there
are; methods with a state keep two more, the mean update and its square. The masks of fedcpf are
drawn: each site shares two thirds of its numbers.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread
from time import perf_counter

import numpy as np

from aggregators import file_digest, merge, write_model
from aggregators.methods.networks import write_network_contribution
from aggregators.models import NetworkContribution, StateDict, TensorInfo
from site_agent.networks.modules import new_network

METHODS = ("fedavg", "fedcpf", "fedadam", "trimmed-mean", "median", "krum", "norm-clip")
_STATUS = Path("/proc/self/status")


def main() -> None:
    """Run the benchmark, or (with --child) the part of it that is measured."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sites", type=int, default=50, help="number of sites (default 50)")
    parser.add_argument("--method", action="append", choices=METHODS, help="only this method")
    parser.add_argument("--glc", action="store_true", help="networks of glc-paper's size")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(_measured(arguments.child, arguments.folder)))
        return
    with tempfile.TemporaryDirectory(prefix="poolctl-benchmark-") as folder:
        size = _make_inputs(Path(folder), arguments.sites, glc=arguments.glc)
        for method in arguments.method or METHODS:
            command = [sys.executable, "-m", "tests.benchmarks.combine_networks"]
            answer = subprocess.run(
                [*command, "--child", method, "--folder", folder],
                check=True,
                capture_output=True,
                text=True,
            )
            measured = json.loads(answer.stdout)
            most = (4 if method == "fedadam" else 2) * size
            verdict = "ok" if measured["bytes"] <= most else "TOO MUCH"
            used = f"{measured['seconds']:6.1f} s   {measured['bytes'] / 1e6:6.0f} MB"
            print(f"{method:14} {used}   {verdict}", flush=True)


def _measured(method: str, folder: Path) -> dict[str, float]:
    sent = folder / "masked" if method == "fedcpf" else folder
    inputs = [folder / "base.safetensors", *sorted(sent.glob("*.contribution"))]
    before = _allocated()
    most, finished = [before], Event()

    def watch() -> None:
        while not finished.wait(0.01):
            most.append(max(most.pop(), _allocated()))

    watching = Thread(target=watch)
    watching.start()
    start = perf_counter()
    merge(method, inputs, output=folder / f"{method}.safetensors")
    seconds = perf_counter() - start
    finished.set()
    watching.join()
    return {"seconds": seconds, "bytes": most[0] - before}


def _allocated() -> float:
    """Return the memory of this process that is no part of a file, in bytes."""
    fields = dict(line.split(":", 1) for line in _STATUS.read_text().splitlines())
    return float(fields["RssAnon"].split()[0]) * 1024


def _make_inputs(folder: Path, sites: int, *, glc: bool) -> int:
    """Write a base and the contributions; return the size of the base in bytes."""
    shapes = _resnet18_shapes()
    if glc:
        infos_of = new_network("glc-paper").infos
        shapes = {name: tuple(info.shape) for name, info in infos_of.items()}
    infos = {name: TensorInfo("F32", shape) for name, shape in shapes.items()}
    random = np.random.default_rng(0)
    network = _drawn(random, infos)
    (folder / "masked").mkdir()
    base = folder / "base.safetensors"
    write_model(network, base)
    digest = file_digest(base)
    for site in range(sites):
        made = NetworkContribution(_drawn(random, infos), "differences", 100 + site, digest)
        write_network_contribution(made, folder / f"{site:03}.contribution")
        masked = _masked(made, random)
        write_network_contribution(masked, folder / "masked" / f"{site:03}.contribution")
    return base.stat().st_size


def _masked(made: NetworkContribution, random: np.random.Generator) -> NetworkContribution:
    shared = {name: random.random(info.shape) < 2 / 3 for name, info in made.network.infos.items()}
    tensors = {
        name: np.where(shared[name], value, 0) for name, value in made.network.tensors.items()
    }
    network = StateDict(tensors, dict(made.network.infos))
    return replace(made, network=network, shared=shared)


def _drawn(random: np.random.Generator, infos: dict[str, TensorInfo]) -> StateDict:
    tensors = {
        name: random.standard_normal(info.shape, dtype=np.float32) for name, info in infos.items()
    }
    return StateDict(tensors, infos)


def _resnet18_shapes() -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {"conv1.weight": (64, 3, 7, 7), "bn1.weight": (64,)}
    inputs = 64
    for layer, width in enumerate((64, 128, 256, 512), start=1):
        for block in range(2):
            name = f"layer{layer}.{block}"
            first = inputs if block == 0 else width
            shapes[f"{name}.conv1.weight"] = (width, first, 3, 3)
            shapes[f"{name}.conv2.weight"] = (width, width, 3, 3)
            shapes[f"{name}.bn2.running_var"] = (width,)
            if first != width:
                shapes[f"{name}.downsample.0.weight"] = (width, first, 1, 1)
        inputs = width
    return shapes | {"fc.weight": (1000, 512), "fc.bias": (1000,)}


if __name__ == "__main__":
    main()
