"""Measure a pool under the load of many clients at once.

    python -m tests.benchmarks.pool_load [--clients N] [--seconds N] [--shape sqlite|postgresql]

Clients of 16 sites list and search models, look at pages, and upload files of 1 MB, each with a
pause of about two seconds between its calls; two of them send files of 40 MB one after the other.
The shapes are SQLite with a folder, and PostgreSQL with a bucket of an S3 server (Swift). Limits:
95 of 100 lists in 150 ms and pages in 400 ms, half of the small uploads in 2 s, no refusal, at
most 20 MB more memory after the first quarter, and at most three times as many calls of one client
as of another. The clients run on the same processors as the server.
"""

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import httpx

from tests.benchmarks.pool_pages import log_in
from tests.pool_server.pool_driver import announce, complete, open_client, pool_process, send_parts
from tests.pool_server.postgres_server import postgres_server
from tests.pool_server.swift_server import swift_server

SITES = 16
SMALL_BYTES, LARGE_BYTES = 1_000_000, 40_000_000
PAUSE_S = 2.0
LIMITS_MS = {"list": ("p95", 150), "page": ("p95", 400), "upload": ("p50", 2000)}
MOST_GROWTH_BYTES = 20_000_000
MOST_RATIO = 3.0
CHOICE = ["list"] * 9 + ["search"] * 3 + ["page"] * 6 + ["upload"] * 2


class Load:
    """Times, answers and calls of all clients."""

    def __init__(self) -> None:
        self.times: dict[str, list[float]] = defaultdict(list)
        self.refused: Counter[str] = Counter()
        self.calls: Counter[int] = Counter()
        self.lock = threading.Lock()
        self.ended = threading.Event()

    def call(
        self,
        number: int,
        kind: str,
        client: httpx.Client,
        browser: httpx.Client,
        chance: random.Random,
    ) -> None:
        begun = time.perf_counter()
        if kind == "upload":
            answer = send(client, f"site-{number % SITES}/model-{number}", SMALL_BYTES, chance)
        elif kind == "large":
            answer = send(client, f"site-{number % SITES}/large-{number}", LARGE_BYTES, chance)
        else:
            path = {
                "list": "/api/v1/models?limit=50",
                "search": f"/api/v1/models?text=model-{chance.randrange(64)}&limit=50",
                "page": "/models",
            }[kind]
            answer = (browser if kind == "page" else client).get(path)
        took_s = time.perf_counter() - begun
        with self.lock:
            if answer.is_success:
                self.times[kind].append(1000 * took_s)
                self.calls[number] += 1
            else:
                self.refused[f"{kind} {answer.status_code} {answer.text[:60]}"] += 1


def send(
    client: httpx.Client, address: str, size_bytes: int, chance: random.Random
) -> httpx.Response:
    content = model_of(size_bytes, chance)
    answer = announce(client, address, content)
    if answer.is_success:
        send_parts(client, answer.json(), content)
        answer = complete(client, answer.json())
    return answer


def model_of(size_bytes: int, chance: random.Random) -> bytes:
    """Return a network of random bytes."""
    values = chance.randbytes(4) * (size_bytes // 4)
    header = json.dumps(
        {"w": {"dtype": "I32", "shape": [size_bytes // 4], "data_offsets": [0, len(values)]}}
    ).encode()
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header + values


@contextmanager
def pool_of(shape: str, folder: Path) -> Iterator[tuple[int, str, str]]:
    """Run a pool; give its process, address and admin token."""
    environment = {"POOL_SERVER_TRIES_PER_MINUTE": "1000000"}
    if shape == "sqlite":
        with pool_process(folder / "pool", folder / "log", **environment) as (process, url, secret):
            assert secret is not None
            yield process.pid, url, secret
        return
    from pool_server.app import create_first_admin
    from pool_server.settings import PoolSettings

    with postgres_server() as postgres, swift_server(folder / "swift") as s3:
        database = postgres.make_database()
        secret = create_first_admin(PoolSettings(database_url=database))
        assert secret is not None
        environment |= s3.pool_environment(s3.make_bucket("load"), database_url=database)
        with pool_process(folder / "pool", folder / "log", **environment) as (process, url, _):
            yield process.pid, url, secret


def memory_bytes(process_id: int) -> int:
    pages = int(Path(f"/proc/{process_id}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def run_clients(url: str, secret: str, process_id: int, clients: int, seconds: float) -> bool:
    """Load the pool and print the table; return whether it keeps the limits."""
    load, tokens, ready = Load(), [], threading.Barrier(clients + 1)
    with open_client(url, secret) as admin:
        for number in range(SITES):
            admin.post("/api/v1/sites", json={"name": f"site-{number}"}).raise_for_status()
            token = {"site": f"site-{number}", "name": "load", "role": "contributor"}
            tokens.append(admin.post("/api/v1/tokens", json=token).json()["secret"])
    send(open_client(url, tokens[0]), "site-0/first", 10_000, random.Random())

    def act(number: int) -> None:
        chance = random.Random(number)
        token = tokens[number % SITES]
        with open_client(url, token) as client, closing(log_in(url, token)) as browser:
            client.timeout = browser.timeout = httpx.Timeout(300)
            ready.wait()
            load.ended.wait(PAUSE_S * chance.random())
            while not load.ended.is_set():
                is_large = number >= clients - 2
                kind = "large" if is_large else chance.choice(CHOICE)
                load.call(number, kind, client, browser, chance)
                load.ended.wait(PAUSE_S * chance.uniform(0.5, 1.5))

    threads = [threading.Thread(target=act, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    ready.wait()
    time.sleep(seconds / 4)
    settled = memory_bytes(process_id)
    time.sleep(seconds * 3 / 4)
    load.ended.set()
    growth = memory_bytes(process_id) - settled
    for thread in threads:
        thread.join()
    return report(load, clients, settled, growth)


def report(load: Load, clients: int, settled: int, growth: int) -> bool:
    is_kept = not load.refused and growth <= MOST_GROWTH_BYTES
    for kind, times in sorted(load.times.items()):
        p50, p95 = statistics.median(times), statistics.quantiles([*times, times[-1]], n=20)[-1]
        print(f"{kind:8} {len(times):6,}  p50 {p50:8.0f} ms  p95 {p95:8.0f} ms")
        which, most = LIMITS_MS.get(kind, ("p50", 1e9))
        is_kept &= (p50 if which == "p50" else p95) <= most
    counts = [load.calls[number] for number in range(clients - 2)]
    ratio = max(counts) / max(1, min(counts))
    is_kept &= ratio <= MOST_RATIO
    print(f"calls a client: {min(counts)} to {max(counts)}, ratio {ratio:.1f}")
    print(f"memory: {settled / 1e6:.0f} MB, then {growth / 1e6:+.0f} MB")
    print(f"refused: {dict(load.refused) or 'none'}")
    return is_kept


def main() -> None:
    """Run the benchmark; the exit status is 1 where a limit is not kept."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--shape", choices=["sqlite", "postgresql"], default="sqlite")
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="poolctl-load-") as folder,
        pool_of(arguments.shape, Path(folder)) as (process_id, url, secret),
    ):
        print(f"{arguments.shape}: {arguments.clients} clients, {arguments.seconds:.0f} s")
        is_kept = run_clients(url, secret, process_id, arguments.clients, arguments.seconds)
    print("within the limits" if is_kept else "BEYOND THE LIMITS")
    sys.exit(0 if is_kept else 1)


if __name__ == "__main__":
    main()
