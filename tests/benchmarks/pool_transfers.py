"""Time transfers through a pool with its files in a bucket, against boto3's own.

    python -m tests.benchmarks.pool_transfers [--size-mb N] [--repetitions N] [--memory-size-mb N]

Starts an S3 server (OpenStack Swift) and a pool server, each a process of its own. The same
bytes then go up and down in turn: by boto3's `upload_file` and `download_file` as they come, and
by `PoolClient` through the pool, which on its way also computes the file's SHA-256, reads back and
verifies the content, and checks the format. Ratios are boto3's time by the pool's. The least wanted
is 0.9, where both verify: `upload_file` is also timed with a digest before it and one of the bytes
read back. Its own ratio is printed without a limit.

Then one larger file goes up and down, with a pool with a bucket and one with a folder, and the peak
memory of the pool's process and of this one is looked at: at most 50 and 150 MB more than before.
"""

import argparse
import hashlib
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from aggregators.formats import file_digest
from site_agent import PoolClient
from site_agent.pool.cache import ModelCache
from tests.pool_server.pool_driver import pool_process
from tests.pool_server.swift_server import S3Server, swift_server

LEAST_RATIO = 0.9
# A client keeps ranges that arrive early in memory.
MOST_GROWTH_BYTES = {"server": 50_000_000, "client": 150_000_000}
TENSOR_BYTES = 1 << 20
# As Amazon's, which boto3's own parts are made for.
LEAST_PART_BYTES = 5 << 20


def main() -> None:
    """Run the benchmark; the exit status is 1 where a limit is not kept."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--size-mb", type=int, default=1000, help="file of the comparison")
    parser.add_argument("--repetitions", type=int, default=3, help="each way, in turn")
    parser.add_argument("--memory-size-mb", type=int, default=5000, help="0: not looked at")
    parser.add_argument("--folder", type=Path, help="where to work (default: a temporary one)")
    arguments = parser.parse_args()
    kept = True
    with tempfile.TemporaryDirectory(prefix="poolctl-benchmark-", dir=arguments.folder) as name:
        folder = Path(name)
        with swift_server(folder / "swift", least_part_bytes=LEAST_PART_BYTES) as s3:
            if arguments.repetitions:
                kept &= compare(folder, s3, arguments.size_mb * 1_000_000, arguments.repetitions)
            if arguments.memory_size_mb:
                kept &= watch_memory(folder, s3, arguments.memory_size_mb * 1_000_000)
    print("within the limits" if kept else "BEYOND THE LIMITS")
    sys.exit(0 if kept else 1)


def compare(folder: Path, s3: S3Server, size_bytes: int, repetitions: int) -> bool:
    bucket = s3.make_bucket("comparison")
    boto3_client = s3.client()
    model, target = folder / "model.safetensors", folder / "received"
    times: dict[str, list[float]] = {}
    print(f"{size_bytes / 1e6:.0f} MB, seconds:")
    with open_pool(folder / "pool", s3.pool_environment(bucket)) as (pool, _):
        warm_up(pool, boto3_client, bucket, folder)
        for number in range(repetitions):
            write_model(model, size_bytes, seed=number)
            name = f"model-{number}"
            steps: dict[str, Callable[[], object]] = {
                "boto3 up": partial(boto3_client.upload_file, str(model), bucket, name),
                "boto3 up, verified": partial(
                    upload_verified, boto3_client, model, bucket, f"{name}-verified"
                ),
                "pool up": partial(pool.upload, model, f"admin/{name}"),
                "boto3 down": partial(boto3_client.download_file, bucket, name, str(target)),
                "pool down": partial(pool.download, f"admin/{name}"),
            }
            for step, act in steps.items():
                start = perf_counter()
                act()
                times.setdefault(step, []).append(perf_counter() - start)
            took = ", ".join(f"{step} {seconds[-1]:.2f}" for step, seconds in times.items())
            print(f"  {took}", flush=True)
            target.unlink()
            pool.cache.remove(pool.version(f"admin/{name}").digest)
    kept = True
    for way, step in (("up", "boto3 up"), ("up", "boto3 up, verified"), ("down", "boto3 down")):
        ratio = statistics.median(times[step]) / statistics.median(times[f"pool {way}"])
        limit = "" if step == "boto3 up" else f" (at least {LEAST_RATIO})"
        print(f"{way}: {ratio:.2f} of the speed of {step}{limit}")
        kept &= not limit or ratio >= LEAST_RATIO
    return kept


def upload_verified(boto3_client: Any, model: Path, bucket: str, name: str) -> None:
    """Upload a file by boto3, read it back, and compare the digests."""
    digest = file_digest(model)
    boto3_client.upload_file(str(model), bucket, name)
    hasher = hashlib.sha256()
    for chunk in boto3_client.get_object(Bucket=bucket, Key=name)["Body"].iter_chunks(1 << 20):
        hasher.update(chunk)
    assert hasher.hexdigest() == digest


def warm_up(pool: PoolClient, boto3_client: Any, bucket: str, folder: Path) -> None:
    """Have both sides load their modules, and open their connections."""
    small = folder / "small.safetensors"
    write_model(small, 20_000_000, seed=999)
    boto3_client.upload_file(str(small), bucket, "small")
    boto3_client.download_file(bucket, "small", str(folder / "received"))
    pool.upload(small, "admin/small")
    pool.download("admin/small")


def watch_memory(folder: Path, s3: S3Server, size_bytes: int) -> bool:
    kept = True
    environments: dict[str, Mapping[str, str]] = {
        "s3": s3.pool_environment(s3.make_bucket("memory")),
        "folder": {},
    }
    model = folder / "large.safetensors"
    small = folder / "small.safetensors"
    write_model(model, size_bytes, seed=1)
    for storage, environment in environments.items():
        with open_pool(folder / f"pool-{storage}", environment) as (pool, process_id):
            # Whatever is loaded at the first upload is there before it counts.
            write_model(small, 20_000_000, seed=2)
            pool.upload(small, "admin/small")
            pool.download("admin/small")
            processes = {"server": process_id, "client": os.getpid()}
            before = {name: peak_bytes(number) for name, number in processes.items()}
            steps: dict[str, Callable[[], object]] = {
                "up": partial(pool.upload, model, "admin/large"),
                "down": partial(pool.download, "admin/large"),
            }
            for step, act in steps.items():
                start = perf_counter()
                act()
                took_s = perf_counter() - start
                grown = {name: peak_bytes(processes[name]) - before[name] for name in processes}
                growth = ", ".join(
                    f"{name} {count / 1e6:.1f} MB from {before[name] / 1e6:.0f} MB"
                    for name, count in grown.items()
                )
                print(
                    f"{storage}: {size_bytes / 1e6:.0f} MB {step} in {took_s:.1f} s; peak memory "
                    f"grew by: {growth}",
                    flush=True,
                )
                kept &= all(grown[name] < most for name, most in MOST_GROWTH_BYTES.items())
    return kept


@contextmanager
def open_pool(folder: Path, environment: Mapping[str, str]) -> Iterator[tuple[PoolClient, int]]:
    """Run a pool server; gives a client for it and the number of its process."""
    folder.mkdir()
    with pool_process(folder, folder / "log", **environment) as (process, url, secret):
        cache = ModelCache(folder / "cache")
        with PoolClient(url, secret, cache=cache, timeout_s=300) as pool:
            yield pool, process.pid


def write_model(path: Path, size_bytes: int, seed: int) -> None:
    """Write a network of about that size, with other bytes for every seed."""
    from safetensors.numpy import save_file

    count = max(1, size_bytes // TENSOR_BYTES)
    block = np.random.default_rng(seed).standard_normal((16, TENSOR_BYTES // 4), dtype=np.float32)
    save_file({f"layer-{i}.weight": block[i % len(block)] for i in range(count)}, path)


def peak_bytes(process_id: int) -> int:
    """Return the most memory that a process had at any time (Linux's VmHWM)."""
    for line in Path(f"/proc/{process_id}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"process {process_id} is gone")


if __name__ == "__main__":
    main()
