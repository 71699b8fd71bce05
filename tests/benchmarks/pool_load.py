"""Measure a pool under the load of many clients at once.

    python -m tests.benchmarks.pool_load [--clients N] [--seconds N] [--shape sqlite|postgresql]

Clients of 16 sites list and search models, look at pages, and upload files of 1 MB, each with a
pause of about two seconds between its calls; two of them send files of 40 MB one after the other.
The shapes are SQLite with a folder, and PostgreSQL with a bucket of an S3 server (Swift). Limits:
95 of 100 lists in 150 ms and pages in 400 ms, half of the small uploads in 2 s, no refusal, at
most 20 MB more memory after the first quarter, and at most three times as many calls of one client
as of another.

The clients run on the same processors as the server, so they do no more than write requests and
read answers, in one thread; files are made and hashed before the clock of their upload starts. The
table says how much of a processor each of the two took: where the server takes all of one, the
times only say how many clients wait.
"""

import argparse
import asyncio
import hashlib
import html
import json
import os
import random
import re
import statistics
import sys
import tempfile
import time
from asyncio import StreamReader, StreamWriter
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from tests.pool_server.pool_driver import open_client, pool_process
from tests.pool_server.postgres_server import postgres_server
from tests.pool_server.swift_server import swift_server

SITES = 16
SMALL_BYTES, LARGE_BYTES = 1_000_000, 40_000_000
PAUSE_S = 2.0
LIMITS_MS = {"list": ("p95", 150), "page": ("p95", 400), "upload": ("p50", 2000)}
MOST_GROWTH_BYTES = 20_000_000
MOST_RATIO = 3.0
CHOICE = ["list"] * 9 + ["search"] * 3 + ["page"] * 6 + ["upload"] * 2


class RefusedError(Exception):
    """An answer of 400 or more."""


class Client:
    """One client of the pool: a connection to each server that it is led to."""

    def __init__(self, url: str, token: str, cookie: str) -> None:
        self._url = url
        self._identity = {
            True: f"Authorization: Bearer {token}\r\n",
            False: f"Cookie: {cookie}\r\nAccept: text/html\r\n",
        }
        self._streams: dict[str, tuple[StreamReader, StreamWriter]] = {}

    async def ask(
        self,
        method: str,
        address: str,
        content: bytes = b"",
        headers: Mapping[str, str] | None = None,
    ) -> bytes:
        """Return the body of an answer; an address without a host is the pool's."""
        parts = urlsplit(address if "://" in address else self._url + address)
        path = parts.path + (f"?{parts.query}" if parts.query else "")
        lines = {"Content-Length": str(len(content)), "Accept-Encoding": "gzip"} | dict(
            headers or {"Content-Type": "application/json"}
        )
        # The pool may lead to its storage; the token does not go there.
        who = self._identity[path.startswith("/api/")] if address.startswith("/") else ""
        fields = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        head = f"{method} {path} HTTP/1.1\r\nHost: {parts.netloc}\r\n{who}{fields}\r\n"
        if parts.netloc not in self._streams:
            opened = await asyncio.open_connection(parts.hostname, parts.port, limit=1 << 20)
            self._streams[parts.netloc] = opened
        reader, writer = self._streams[parts.netloc]
        writer.write(head.encode() + content if len(content) < 65536 else head.encode())
        if len(content) >= 65536:
            writer.write(content)
        await writer.drain()
        status, body, is_last = await read_answer(reader)
        if is_last:
            writer.close()
            del self._streams[parts.netloc]
        if status >= 400:
            raise RefusedError(f"{status} {body[:60]!r}")
        return body

    async def upload(self, address: str, content: bytes) -> None:
        site, name = address.split("/")
        digests = {kind: hashlib.new(kind, content).hexdigest() for kind in ("md5", "sha256")}
        request = {
            "site": site,
            "name": name,
            "size_bytes": len(content),
            "digest": digests["sha256"],
            "file_name": f"{name}.bin",
        }
        upload = await self._post("/api/v1/uploads", request)
        at = f"/api/v1/uploads/{upload['upload_id']}"
        for part in upload["parts"]:
            whole = content[part["offset"] : part["offset"] + part["size_bytes"]]
            kind = upload["part_checksum"]
            known = digests[kind] if len(whole) == len(content) else await digest_of(kind, whole)
            offered = {"parts": [{"number": part["number"], "checksum": known}]}
            place = (await self._post(f"{at}/parts", offered))["items"][0]
            await self.ask("PUT", place["url"], whole, place["headers"])
        await self.ask("POST", f"{at}/complete")

    async def _post(self, path: str, document: object) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(
            await self.ask("POST", path, json.dumps(document).encode())
        )
        return answer

    def close(self) -> None:
        for _, writer in self._streams.values():
            writer.close()


async def digest_of(kind: str, content: bytes) -> str:
    return (await asyncio.to_thread(hashlib.new, kind, content)).hexdigest()


async def read_answer(reader: StreamReader) -> tuple[int, bytes, bool]:
    """Return status and body of an answer, and whether the connection ends with it."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
    status, is_last = int(head[9:12]), "connection: close" in head
    if "transfer-encoding: chunked" in head:
        body = b""
        while size := int(await reader.readline(), 16):
            body += (await reader.readexactly(size + 2))[:-2]
        await reader.readline()
        return status, body, is_last
    length = head.partition("content-length: ")[2].partition("\r\n")[0]
    return status, await reader.readexactly(int(length or 0)), is_last


class Load:
    """Times, answers and calls of all clients."""

    def __init__(self) -> None:
        self.times: dict[str, list[float]] = defaultdict(list)
        self.refused: Counter[str] = Counter()
        self.calls: Counter[int] = Counter()
        self.ended = asyncio.Event()

    async def call(self, number: int, kind: str, client: Client, chance: random.Random) -> None:
        large = kind == "large"
        content = await asyncio.to_thread(model_of, LARGE_BYTES if large else SMALL_BYTES, chance)
        begun = time.perf_counter()
        try:
            if kind in {"upload", "large"}:
                await client.upload(f"site-{number % SITES}/{kind}-{number}", content)
            else:
                text = f"text=upload-{chance.randrange(64)}&" if kind == "search" else ""
                path = "/models" if kind == "page" else f"/api/v1/models?{text}limit=50"
                await client.ask("GET", path)
        except RefusedError as refusal:
            self.refused[f"{kind} {refusal}"] += 1
            return
        self.times[kind].append(1000 * (time.perf_counter() - begun))
        self.calls[number] += 1

    async def act(
        self, number: int, client: Client, chance: random.Random, *, is_large: bool
    ) -> None:
        await self.pause(PAUSE_S * chance.random())
        while not self.ended.is_set():
            await self.call(number, "large" if is_large else chance.choice(CHOICE), client, chance)
            await self.pause(PAUSE_S * chance.uniform(0.5, 1.5))
        client.close()

    async def pause(self, longest_s: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self.ended.wait(), longest_s)


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


def processor_s(process_id: int) -> float:
    """Return the processor time of a process, without its children."""
    fields = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def log_in(url: str, secret: str) -> httpx.Client:
    """Return a client with the cookie of a session."""
    client = httpx.Client(base_url=url, timeout=60)
    field = re.search(r'name="csrf" value="([^"]+)"', client.get("/login").text)
    assert field is not None
    client.post("/login", data={"csrf": html.unescape(field[1]), "token": secret})
    return client


async def run_clients(url: str, secret: str, process_id: int, count: int, seconds: float) -> bool:
    """Load the pool and print the table; return whether it keeps the limits."""
    load, tokens, cookies = Load(), [], []
    with open_client(url, secret) as admin:
        for number in range(SITES):
            admin.post("/api/v1/sites", json={"name": f"site-{number}"}).raise_for_status()
            token = {"site": f"site-{number}", "name": "load", "role": "contributor"}
            tokens.append(admin.post("/api/v1/tokens", json=token).json()["secret"])
    for token in (tokens * count)[:count]:
        with closing(log_in(url, token)) as browser:
            cookies.append("; ".join(f"{name}={value}" for name, value in browser.cookies.items()))
    clients = [Client(url, tokens[i % SITES], cookie) for i, cookie in enumerate(cookies)]
    for number in range(SITES):
        content = model_of(10_000, random.Random(-number))
        await clients[number].upload(f"site-{number}/upload-{number}", content)
    acting = [
        asyncio.create_task(
            load.act(number, client, random.Random(number), is_large=number >= count - 2)
        )
        for number, client in enumerate(clients)
    ]
    begun, served_s, asked_s = time.perf_counter(), processor_s(process_id), time.process_time()
    await asyncio.sleep(seconds / 4)
    settled = memory_bytes(process_id)
    await asyncio.sleep(seconds * 3 / 4)
    took_s, growth = time.perf_counter() - begun, memory_bytes(process_id) - settled
    served_s, asked_s = processor_s(process_id) - served_s, time.process_time() - asked_s
    load.ended.set()
    await asyncio.gather(*acting)
    answered = sum(map(len, load.times.values()))
    print(
        f"{answered / took_s:.1f} calls/s; of a processor the server took {served_s / took_s:.2f}, "
        f"the clients {asked_s / took_s:.2f}"
    )
    return report(load, count, settled, growth)


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
        is_kept = asyncio.run(
            run_clients(url, secret, process_id, arguments.clients, arguments.seconds)
        )
    print("within the limits" if is_kept else "BEYOND THE LIMITS")
    sys.exit(0 if is_kept else 1)


if __name__ == "__main__":
    main()
