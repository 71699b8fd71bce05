"""A pool under work while its servers, PostgreSQL and the S3 server are killed in turn.

`POOL_SOAK_S` is how long (30 minutes: 1800), `POOL_SOAK_PERIOD_S` the time between two kills.
"""

import itertools
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx
import pytest

from pool_server.app import create_first_admin
from pool_server.operations.maintenance import check_pool, open_pool_offline
from pool_server.settings import PoolSettings
from tests.pool_server.model_files import network_bytes, sha256
from tests.pool_server.pool_driver import announce, complete, open_client, send_parts
from tests.pool_server.postgres_server import postgres_server
from tests.pool_server.server_process import ServerProcess, started_process
from tests.pool_server.swift_server import start_swift
from tests.site_agent.live_pool import UnreliableLine

API = "/api/v1"
SOAK_S = float(os.environ.get("POOL_SOAK_S", "60"))
PERIOD_S = float(os.environ.get("POOL_SOAK_PERIOD_S", "15"))
WORKERS = 4
pytestmark = [
    pytest.mark.slow, pytest.mark.postgres, pytest.mark.s3, pytest.mark.timeout(SOAK_S + 900)
]  # fmt: skip


class Site(threading.Thread):
    """Uploads and has merges made, over and over; keeps the acknowledged versions and merges."""

    def __init__(self, number: int, url: Callable[[], str], token: str) -> None:
        super().__init__(daemon=True)
        self.number, self.url, self.token = number, url, token
        self.versions: dict[str, str] = {}
        self.merges: list[str] = []
        self.refused: list[str] = []
        self.ended = threading.Event()

    def run(self) -> None:
        for turn in itertools.count():
            if self.ended.is_set():
                return
            # `send_parts` fails where a part is refused, as it is while PostgreSQL is down.
            failures = suppress(httpx.HTTPError, AssertionError)
            with failures, open_client(self.url(), self.token) as client:
                self._work(client, f"m{self.number}-{turn}")
            self.ended.wait(0.2)

    def _work(self, client: httpx.Client, name: str) -> None:
        content = network_bytes(200, seed=hash((self.number, name)) & 0xFFFFFFFF)
        answer = announce(client, f"soak/{name}", content)
        if answer.is_success and answer.json()["state"] != "complete":
            send_parts(client, answer.json(), content)
            answer = complete(client, answer.json())
        if answer.is_success:
            self.versions[name] = sha256(content)
            recipe = {
                "schema": "poolctl-recipe/1",
                "method": {"name": "fedavg", "version": 2},
                "options": {},
                "inputs": [{"digest": sha256(content)}],
            }
            request = {"site": "soak", "name": f"{name}-merged", "recipe": recipe}
            answer = client.post(f"{API}/merges", json=request)
            if answer.status_code == 202:
                self.merges.append(answer.json()["merge_id"])
        if answer.status_code < 500 and not answer.is_success:
            self.refused.append(answer.text)


def test_nothing_acknowledged_is_lost_by_kills(tmp_path: Path) -> None:
    with ExitStack() as stack:
        postgres = stack.enter_context(postgres_server())
        swift = start_swift(tmp_path / "swift")
        stack.callback(lambda: os.kill(swift.process_id, signal.SIGKILL))
        line = stack.enter_context(UnreliableLine(swift.endpoint_url))
        database = postgres.make_database()
        fields = swift.pool_settings(
            swift.make_bucket("soak"),
            s3_endpoint_url=line.url,
            lease_s=5,
            tries_per_minute=1_000_000,
            max_open_merges_per_site=10_000,
        )
        settings = PoolSettings(data_folder=tmp_path, database_url=database, **fields)
        secret = create_first_admin(settings)
        assert secret is not None
        environment = {f"POOL_SERVER_{name.upper()}": str(value) for name, value in fields.items()}
        environment["POOL_SERVER_DATABASE_URL"] = database
        urls: list[str] = ["", ""]

        def start(number: int) -> ServerProcess:
            process = stack.enter_context(
                started_process(tmp_path, tmp_path / f"log-{number}", **environment)
            )
            urls[number] = process.wait_until_ready()[0]
            return process

        servers = [start(0), start(1)]
        with open_client(urls[0], secret) as admin:
            admin.post(f"{API}/sites", json={"name": "soak"}).raise_for_status()
            token = {"site": "soak", "name": "station", "role": "contributor"}
            station = admin.post(f"{API}/tokens", json=token).json()["secret"]
        turn = itertools.count()
        sites = [Site(n, lambda: urls[next(turn) % 2], station) for n in range(WORKERS)]
        for site in sites:
            site.start()
        end_s, kills = time.monotonic() + SOAK_S, 0
        for kind in itertools.cycle(["server", "postgres", "s3", "other server"]):
            time.sleep(max(0.0, min(PERIOD_S, end_s - time.monotonic())))
            if time.monotonic() >= end_s:
                break
            kills += 1
            if kind == "postgres":
                postgres.kill()
                postgres.start()
            elif kind == "s3":
                os.kill(swift.process_id, signal.SIGKILL)
                swift = start_swift(tmp_path / "swift")
                line.turn_to(swift.endpoint_url)
            else:
                number = int(kind == "other server")
                servers[number].kill()
                servers[number].wait()
                servers[number] = start(number)
        for site in sites:
            site.ended.set()
        for site in sites:
            site.join(120)
        versions = {name: digest for site in sites for name, digest in site.versions.items()}
        merges = [merge for site in sites for merge in site.merges]
        with open_client(urls[0], station) as client:
            end_s, left = time.monotonic() + 300, set(merges)
            while left and time.monotonic() < end_s:
                states = {key: client.get(f"{API}/merges/{key}").json() for key in left}
                left = {key for key, job in states.items() if job.get("state") != "finished"}
                assert not [job for job in states.values() if job.get("state") == "failed"]
                time.sleep(0.2)
            for name, digest in versions.items():
                file = client.get(f"{API}/models/soak/{name}/versions/1/content")
                assert sha256(file.content) == digest, name
        refused = [text for site in sites for text in site.refused]
        print(f"{kills} kills, {len(versions)} versions, {len(merges)} merges, refused: {refused}")
        assert not left, "merges are left undone"
        assert len(versions) > WORKERS
        with open_pool_offline(settings) as pool:
            assert check_pool(pool).is_sound
