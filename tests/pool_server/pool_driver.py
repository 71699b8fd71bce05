"""A real pool for tests, and short functions for a client's requests."""

import hashlib
import itertools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import httpx
from sqlalchemy import Executable

from pool_server.app import create_first_admin, prepare_database
from pool_server.database.engine import Database
from pool_server.errors import StartError
from pool_server.server import ReportingServer, hold_data_folder, listening_socket, socket_url
from pool_server.settings import PoolSettings
from tests.pool_server.in_process import POOL_URL, AppTransport, PoolTransport, running_application
from tests.pool_server.model_files import network_bytes, sha256
from tests.pool_server.server_process import ServerProcess, put_empty_database, started_process

T = TypeVar("T")
SMALL_PART_BYTES = 64 * 1024
# Tests come from one address and are many; those of the limits themselves set others.
UNHURRIED = {"tries_per_minute": 1_000_000}


@dataclass
class PoolDriver:
    """Speaks to a pool as its admin, and makes clients for others.

    Where several processes serve the pool (`others` are the addresses of all but the first), each
    client goes to another one with every request. `processes` are all of them, to be killed.
    """

    url: str
    admin_secret: str
    settings: PoolSettings
    stack: ExitStack = field(default_factory=ExitStack)
    secrets: dict[tuple[str, str], str] = field(default_factory=dict)
    others: tuple[str, ...] = ()
    processes: tuple[ServerProcess, ...] = ()

    application: AppTransport | None = None
    """The pool in this process; None: it is asked over a socket."""
    clients: dict[str | None, httpx.Client] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # One for all clients: each would keep a connection of its own open to the end of the run.
        self.transport = self.application or AlternatingTransport([self.url, *self.others])
        self.admin = self.client(self.admin_secret)

    def client(self, secret: str | None) -> httpx.Client:
        if secret not in self.clients:
            client = open_client(self.url, secret, self.transport)
            self.clients[secret] = self.stack.enter_context(client)
        return self.clients[secret]

    def secret(self, site: str, role: str) -> str:
        """Return a token of that site and role, made at the first call."""
        if (site, role) not in self.secrets:
            created = self.admin.post("/api/v1/sites", json={"name": site})
            assert created.status_code in {201, 409}
            token = self.admin.post(
                "/api/v1/tokens", json={"site": site, "name": f"test-{role}", "role": role}
            )
            assert token.status_code == 201, token.text
            self.secrets[site, role] = token.json()["secret"]
        return self.secrets[site, role]

    def change(self, statement: Executable) -> None:
        """Bring about a state that no route sets at once, such as the expiry of a token."""
        database = Database.open(self.settings)
        with database.write() as session:
            session.execute(statement)
        database.close()

    def member(self, site: str, role: str = "contributor") -> httpx.Client:
        return self.client(self.secret(site, role))


def open_client(
    url: str, secret: str | None, transport: httpx.BaseTransport | None = None
) -> httpx.Client:
    headers = {} if secret is None else {"Authorization": f"Bearer {secret}"}
    # The pool may lead to its storage; the token does not go there.
    return httpx.Client(
        base_url=url,
        headers=headers,
        timeout=540,
        transport=transport or AlternatingTransport([url]),
        follow_redirects=True,
    )


class AlternatingTransport(PoolTransport):
    """Sends each request to the next of several processes, as a load balancer does."""

    def __init__(self, urls: Sequence[str]) -> None:
        super().__init__(urls[0])
        self._turn = itertools.cycle([httpx.URL(url) for url in urls])

    def ask_pool(self, request: httpx.Request) -> httpx.Response:
        process = next(self._turn)
        sent = httpx.Request(
            request.method,
            request.url.copy_with(host=process.host, port=process.port),
            headers=request.headers,
            stream=request.stream,
            extensions=request.extensions,
        )
        return self.network.handle_request(sent)


def announce(client: httpx.Client, address: str, content: bytes, **fields: Any) -> httpx.Response:
    site, name = address.split("/")
    request = {
        "site": site,
        "name": name,
        "size_bytes": len(content),
        "digest": sha256(content),
        "file_name": f"{name}.bin",
        **fields,
    }
    return client.post("/api/v1/uploads", json=request)


def send_parts(client: httpx.Client, upload: Mapping[str, Any], content: bytes) -> None:
    for part in upload["parts"]:
        if not part["received"]:
            end = part["offset"] + part["size_bytes"]
            sent = send_part(client, upload, part["number"], content[part["offset"] : end])
            assert sent.is_success, sent.text


def send_part(
    client: httpx.Client, upload: Mapping[str, Any], number: int, content: bytes
) -> httpx.Response:
    """Send a part to where the pool wants it: to itself, or to its storage."""
    known = {"md5": hashlib.md5(content).hexdigest(), "sha256": sha256(content)}
    part = {"number": number, "checksum": known[upload["part_checksum"]]}
    answer = client.post(f"/api/v1/uploads/{upload['upload_id']}/parts", json={"parts": [part]})
    if not answer.is_success:
        return answer
    address = answer.json()["items"][0]
    return client.put(address["url"], content=content, headers=address["headers"])


def complete(client: httpx.Client, upload: Mapping[str, Any]) -> httpx.Response:
    return client.post(f"/api/v1/uploads/{upload['upload_id']}/complete")


def upload(
    client: httpx.Client, address: str, content: bytes | None = None, **fields: Any
) -> dict[str, Any]:
    """Upload a file as a whole and return its version."""
    content = network_bytes() if content is None else content
    announced = announce(client, address, content, **fields)
    assert announced.status_code in {200, 201}, announced.text
    if announced.json()["state"] != "complete":
        send_parts(client, announced.json(), content)
        announced = complete(client, announced.json())
        assert announced.status_code == 201, announced.text
    return announced.json()["version"]


def let_hand_on(owner: httpx.Client, address: str) -> None:
    """Let other sites publish the files of a model under names of their own."""
    rights = ["download", "merge", "redistribute"]
    sharing = {"visibility": "consortium", "rights": rights}
    answer = owner.put(f"/api/v1/models/{address}/sharing", json=sharing)
    assert answer.status_code == 200, answer.text


def error_of(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, response.json()["error"]["code"]


def pages_of(client: httpx.Client, path: str, **query: Any) -> list[dict[str, Any]]:
    """Return all pages of a listing."""
    pages = [client.get(path, params=query).json()]
    while cursor := pages[-1]["next_cursor"]:
        pages.append(client.get(path, params={**query, "cursor": cursor}).json())
    return pages


def at_once(*acts: Callable[[], T]) -> list[T]:
    """Do things at the same moment, and return their results."""
    together = threading.Barrier(len(acts))

    def do(act: Callable[[], T]) -> T:
        together.wait()
        return act()

    with ThreadPoolExecutor(len(acts)) as threads:
        return list(threads.map(do, acts))


@contextmanager
def pool_in_process(folder: Path, **settings: Any) -> Iterator[PoolDriver]:
    """Run a pool without a server: a request costs less, and the pool ends at once."""
    chosen = settings_of_tests(folder, **settings)
    with hold_data_folder(chosen), ExitStack() as stack:
        secret = create_first_admin(chosen)
        assert secret is not None
        application = stack.enter_context(running_application(chosen))
        yield PoolDriver(POOL_URL, secret, chosen, stack, application=application)


@contextmanager
def running_pool(settings: PoolSettings) -> Iterator[tuple[str, str | None]]:
    """Serve a pool from a thread of this process: everything is real but the process.

    Gives the pool's URL and, for a fresh data folder, the secret of its admin token.
    """
    with hold_data_folder(settings), listening_socket(settings) as listener:
        secret = prepare_database(settings)
        ready = threading.Event()
        server = ReportingServer(settings, ready.set)
        thread = threading.Thread(
            target=server.run, kwargs={"sockets": [listener]}, name="pool server", daemon=True
        )
        thread.start()
        try:
            while not ready.wait(0.05):
                if not thread.is_alive():
                    raise StartError(
                        "the server ended while it started; see the log", code="start_failed"
                    )
            yield socket_url(settings, listener), secret
        finally:
            server.should_exit = True
            thread.join(settings.graceful_stop_s + 60)


@contextmanager
def pool_in_thread(folder: Path, **settings: Any) -> Iterator[PoolDriver]:
    """Run a server, for programs and browsers that want an address."""
    chosen = settings_of_tests(folder, **settings)
    # On PostgreSQL a pool is set up by hand, by whoever looks after it.
    made = create_first_admin(chosen) if chosen.uses_postgresql else None
    with running_pool(chosen) as (url, first), ExitStack() as stack:
        secret = first or made
        assert secret is not None
        yield PoolDriver(url, secret, chosen, stack)


def settings_of_tests(folder: Path, **settings: Any) -> PoolSettings:
    chosen = PoolSettings(
        data_folder=folder, port=0, **{"part_bytes": SMALL_PART_BYTES, **UNHURRIED, **settings}
    )
    put_empty_database(chosen)
    return chosen


@contextmanager
def pool_of_processes(
    folder: Path, database_url: str, *, count: int = 2, **fields: Any
) -> Iterator[PoolDriver]:
    """Run a pool that `count` processes serve: on PostgreSQL, with the storage in `fields`."""
    fields = {"part_bytes": SMALL_PART_BYTES, **UNHURRIED, **fields}
    chosen = PoolSettings(data_folder=folder, database_url=database_url, port=0, **fields)
    secret = create_first_admin(chosen)
    assert secret is not None
    environment = {f"POOL_SERVER_{name.upper()}": str(value) for name, value in fields.items()}
    environment["POOL_SERVER_DATABASE_URL"] = database_url
    with ExitStack() as stack:
        # All are started before the first is waited for.
        logs = [folder / f"log-{number}" for number in range(count)]
        started = [stack.enter_context(started_process(folder, log, **environment)) for log in logs]
        urls = [process.wait_until_ready()[0] for process in started]
        yield PoolDriver(
            urls[0], secret, chosen, stack, others=tuple(urls[1:]), processes=tuple(started)
        )


@contextmanager
def pool_process(
    folder: Path, log: Path | None = None, **environment: str
) -> Iterator[tuple[ServerProcess, str, str | None]]:
    """Run a server as a process of its own; gives it, its URL and the first secret."""
    with started_process(folder, log, **environment) as process:
        yield process, *process.wait_until_ready()
