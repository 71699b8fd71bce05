"""Requests to the storage of a pool, where that takes and gives the bytes itself.

An address there carries its own permission, for some minutes. Nothing of the pool's is sent
along, least of all the token. `connection` opens and reads its requests by the same functions.

Certificates that a login pinned: the only ones that prove a pool to this machine.

An address with a fingerprint, ``https://lab.example.org:8710#sha256=HEX``, names the certificate of
a pool that no public authority has signed. `pin_certificate` stores it; every connection to that
host and port then trusts it alone, and no authority's word for another.
"""

import hashlib
import hmac
import os
import queue
import re
import ssl
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx

from aggregators.whole_file import write_whole
from site_agent import errors
from site_agent.own_folders import config_folder
from site_agent.pool.profiles import host_of, is_this_machine, normalise_endpoint

_PIN = re.compile(r"sha256=([0-9a-f]{64})")
_LONGEST_WAIT_S = 20.0
_PROXIES = frozenset({"http_proxy", "https_proxy", "all_proxy", "no_proxy"})


def pin_certificate(address: str) -> str:
    """Pin the certificate that an address names by fingerprint; return the bare address.

    Raises `InvalidInputError` for another form of fingerprint, `PoolUnreachableError` without an
    answer, and `SignatureError` for another certificate.
    """
    place, _, fragment = address.strip().partition("#")
    endpoint = normalise_endpoint(place)
    if not fragment:
        return endpoint
    pin = _PIN.fullmatch(fragment.replace(":", "").lower())
    parts = urlsplit(endpoint)
    if pin is None or parts.scheme != "https":
        raise errors.InvalidInputError(
            f"found {address!r}, expected https://HOST:PORT#sha256= with 64 hexadecimal digits",
            hint="copy the whole address that 'poolctl serve' printed",
        )
    try:
        server = (parts.hostname or "", parts.port or 443)
        pem = ssl.get_server_certificate(server, timeout=_LONGEST_WAIT_S)
    except OSError as error:
        raise errors.PoolUnreachableError(f"no answer from {endpoint}: {error}") from error
    fingerprint = hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem)).hexdigest()
    if not hmac.compare_digest(fingerprint, pin[1]):
        raise errors.SignatureError(
            f"{endpoint} shows a certificate with SHA-256 {fingerprint}, expected {pin[1]}",
            hint="somebody may stand between you and the pool: ask its admin for the fingerprint",
        )
    file = _pin_file(endpoint)
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_whole(file, pem, mode=0o600)
    return endpoint


def address_with_pin(endpoint: str) -> str:
    """Return a pool's address for others: with the fingerprint of its certificate, if pinned."""
    try:
        pem = _pin_file(endpoint).read_text(encoding="ascii")
    except FileNotFoundError:
        return endpoint
    return f"{endpoint}#sha256={hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem)).hexdigest()}"


def pinned_context(url: str) -> ssl.SSLContext | None:
    """Return a context that trusts the pinned certificate alone; None without one."""
    try:
        pem = _pin_file(url).read_text(encoding="ascii")
    except FileNotFoundError:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # The certificate itself is known, so its names say nothing more.
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(cadata=pem)
    return context


def _pin_file(url: str) -> Path:
    return config_folder() / "pins" / f"{host_of(url)}.pem"


# After a large part some servers think for a while.
_LEAST_TIMEOUT_S = 60.0
MOST_ANSWER_BYTES = 64 * 1024 * 1024
"""The family of a model with thousands of recipes takes a few megabytes."""
_GONE_STATUS = 404
_PASSING_STATUS = frozenset({408, 429})
# Error codes of S3 for bytes that do not match the announced checksum.
_DAMAGED_CODES = frozenset({"BadDigest", "InvalidDigest", "XAmzContentChecksumMismatch"})


class StorageConnection:
    """Connections to all hosts that the pool's addresses name."""

    def __init__(self, *, timeout_s: float) -> None:
        limit_s = max(timeout_s, _LEAST_TIMEOUT_S)
        self._timeout = httpx.Timeout(limit_s, connect=min(timeout_s, 10.0))
        self._clients: dict[str, httpx.Client] = {}
        self._lock = threading.Lock()

    def close(self) -> None:
        for client in self._clients.values():
            client.close()
        self._clients.clear()

    def put(
        self, url: str, headers: Mapping[str, str], content: Callable[[], Iterable[bytes]]
    ) -> None:
        """Send bytes to an address; one attempt.

        Another one with a new address may succeed after `AddressGoneError` or
        `PoolUnreachableError`.
        """
        client = self._client(url)
        request = client.build_request("PUT", url, headers=headers, content=content())
        try:
            response = read_whole(client.send(request, stream=True))
        except httpx.TransportError as error:
            raise _unreachable(url, error) from error
        if not response.is_success:
            raise _failure(response)

    @contextmanager
    def stream(self, url: str, first: int, last: int) -> Iterator[Iterator[bytes]]:
        """Start receiving the bytes `first` to `last`, both included; one attempt.

        The line may also break inside the block (`AddressGoneError`, `PoolUnreachableError`).
        """
        client = self._client(url)
        headers = {"Range": f"bytes={first}-{last}", "Accept-Encoding": "identity"}
        request = client.build_request("GET", url, headers=headers)
        try:
            response = client.send(request, stream=True)
            try:
                if not response.is_success:
                    raise _failure(read_whole(response))
                if response.status_code != 206 and first > 0:
                    raise errors.PoolAnswerError(
                        f"{_host(url)} gave a whole file for a range of it"
                    )
                yield response.iter_raw()
            finally:
                response.close()
        except (httpx.TransportError, httpx.StreamError) as error:
            raise _unreachable(url, error) from error

    def _client(self, url: str) -> httpx.Client:
        host = _host(url)
        # Several threads send their first parts at once.
        with self._lock:
            if host not in self._clients:
                self._clients[host] = open_http_client(url, self._timeout)
            return self._clients[host]


def _host(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def _unreachable(url: str, error: Exception) -> errors.PoolUnreachableError:
    why = str(error).strip() or type(error).__name__
    return errors.PoolUnreachableError(
        f"no answer from the pool's storage at {_host(url)}: {why}",
        hint="can it be reached from this network? Then run the same command again; transfers "
        "go on where they stopped",
    )


def _failure(
    response: httpx.Response,
) -> errors.PoolUnreachableError | errors.PoolRefusedRequestError:
    status = response.status_code
    match = re.search(r"<Code>([A-Za-z0-9]{1,64})</Code>", response.text[:4000])
    code = match[1] if match else ""
    said = f"{_host(str(response.url))}, the pool's storage, answered {status} {code}".rstrip()
    if code in _DAMAGED_CODES:
        return errors.PoolUnreachableError(f"{said}: the bytes were damaged on the way")
    if status in {401, 403} or code == "ExpiredToken":
        return errors.PoolUnreachableError(
            said, hint="is the clock of this machine right? Otherwise notify the pool's admin"
        )
    if status == _GONE_STATUS:
        return errors.AddressGoneError(said, hint="notify the pool's admin if it stays so")
    if status in _PASSING_STATUS or status >= 500:
        return errors.PoolUnreachableError(said, hint="run the same command again")
    return errors.PoolRefusedRequestError(said, hint="notify the pool's admin")


def open_http_client(url: str, timeout: httpx.Timeout, **options: Any) -> httpx.Client:
    """Return a client for the server of an address; without a proxy for one on this machine."""
    is_local = is_this_machine(url)
    certificates = pinned_context(url) or trusted_certificates(trust_env=not is_local)
    try:
        return httpx.Client(timeout=timeout, verify=certificates, trust_env=not is_local, **options)
    except (ImportError, ValueError, httpx.InvalidURL) as error:
        # Names alone: values hold passwords.
        named = [name for name, value in os.environ.items() if value and name.lower() in _PROXIES]
        raise errors.InvalidInputError(
            f"{url}: {error}",
            hint=f"look at {', '.join(named)}: a proxy is http://, https://, socks5:// or "
            "socks5h://; NO_PROXY has host names, .endings and IP addresses, without ranges "
            "and brackets"
            if named
            else "",
        ) from error


def trusted_certificates(*, trust_env: bool) -> ssl.SSLContext:
    """Return the TLS context for verifying servers; read once, because that is slow.

    With `trust_env` the variables SSL_CERT_FILE and SSL_CERT_DIR may name other certificates.
    """
    named = ("SSL_CERT_FILE", "SSL_CERT_DIR") if trust_env else ()
    return _read_certificates(tuple(os.environ.get(name, "") for name in named))


@cache
def _read_certificates(places: tuple[str, ...]) -> ssl.SSLContext:
    names = ("SSL_CERT_FILE", "SSL_CERT_DIR")
    for name, place in zip(names, places, strict=False):
        if place and not Path(place).exists():
            raise errors.InvalidInputError(f"{name}: there is no {place}")
    try:
        return httpx.create_ssl_context(trust_env=bool(places))
    except OSError as error:  # ssl.SSLError is one
        named = " and ".join(
            f"{name}={place}" for name, place in zip(names, places, strict=False) if place
        )
        raise errors.InvalidInputError(
            f"{named}: cannot be read as certificates: {error.strerror or error}; expected PEM"
        ) from error


def read_whole(response: httpx.Response) -> httpx.Response:
    """Read the body of an answer that was begun; refuse one too large, or compressed."""
    host = f"{response.url.scheme}://{response.url.netloc.decode()}"
    body = bytearray()
    try:
        encoding = response.headers.get("Content-Encoding", "identity")
        if encoding != "identity":
            raise errors.PoolAnswerError(
                f"{host} sent a compressed answer ({encoding[:40]}), although none was asked for",
                hint="a proxy between here and the pool may have compressed it",
            )
        for chunk in response.iter_raw():
            body += chunk
            if len(body) > MOST_ANSWER_BYTES:
                raise errors.PoolAnswerError(
                    f"{host} sent more than {MOST_ANSWER_BYTES:,} bytes as one answer"
                )
    finally:
        response.close()
    return httpx.Response(
        response.status_code,
        headers=response.headers,
        content=bytes(body),
        request=response.request,
    )


Item = TypeVar("Item")
Result = TypeVar("Result")

_REPORT_EVERY_S = 0.2


class BlockThreads:
    """Threads that end with a block: it asks them to stop, and waits for them.

    An interrupted block is left at once, because a silent server or a long training could keep the
    user waiting. The threads are daemons for that, and no futures: Python may raise
    `KeyboardInterrupt` while the main thread holds the lock of a future, which then stays locked,
    and the thread that fills that future waits for ever (`concurrent.futures.wait` in slices hung
    once in some hundred interruptions). Threads should answer by `queue.SimpleQueue`, which cannot
    be left half locked; `run` does.
    """

    def __init__(self, name: str) -> None:
        self.stopped = threading.Event()
        """Set at the end of the block: no further work is needed."""
        self._name = name
        self._threads: list[threading.Thread] = []

    def start(self, work: Callable[[], None]) -> None:
        """Run `work` in a thread of its own; it must raise nothing."""
        name = f"{self._name}-{len(self._threads)}"
        thread = threading.Thread(target=work, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def run(
        self,
        work: Callable[[Item], Result],
        items: Sequence[Item],
        most_at_once: int,
        report: Callable[[], None] = lambda: None,
    ) -> list[Result]:
        """Do the work for every item, some at once, and return the results in their order.

        `report`: called here after each result, and five times a second while none comes.

        Raises `BaseException`: the first error of `work`; items that have not started are skipped.
        """
        left: queue.SimpleQueue[int] = queue.SimpleQueue()
        ended: queue.SimpleQueue[tuple[int, Result] | BaseException] = queue.SimpleQueue()

        def take_turns() -> None:
            while not self.stopped.is_set():
                try:
                    index = left.get_nowait()
                except queue.Empty:
                    return
                try:
                    ended.put((index, work(items[index])))
                except BaseException as error:
                    ended.put(error)
                    self.stopped.set()

        for index in range(len(items)):
            left.put(index)
        for _ in range(min(most_at_once, len(items))):
            self.start(take_turns)
        results: dict[int, Result] = {}
        while len(results) < len(items):
            try:
                end = ended.get(timeout=_REPORT_EVERY_S)
            except queue.Empty:
                pass
            else:
                if isinstance(end, BaseException):
                    raise end
                results[end[0]] = end[1]
            report()
        return [results[index] for index in range(len(items))]

    def __enter__(self) -> "BlockThreads":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stopped.set()
        if kind is None or issubclass(kind, (Exception, GeneratorExit)):
            for thread in self._threads:
                thread.join()
