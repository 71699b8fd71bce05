"""Calling an address that somebody outside gave, and nothing within the pool's own network.

The one place in which the server speaks to others on its own account. The name is resolved once,
every address it has is checked, and the connection goes to a checked address: a name that is
resolved a second time could lead elsewhere. Redirects are not followed, for they could, too.
"""

from __future__ import annotations

import ipaddress
import socket
import ssl
from collections.abc import Mapping
from functools import cache
from http.client import HTTPConnection, HTTPException
from threading import Timer
from urllib.parse import SplitResult, urlsplit

from pool_server.errors import WebhookRefusedError
from pool_server.settings import PoolSettings

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

# All that the registries give to networks; mapped, translated (NAT64) and local addresses lie
# elsewhere. Source: IANA IPv6 Global Unicast Address Assignments.
_GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")
# Within it, but for protocols (Teredo), documentation, or with an IPv4 address inside (6to4).
_SPECIAL = tuple(
    map(ipaddress.IPv6Network, ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20"))
)
_MOST_ANSWER_BYTES = 4096
TIMEOUT_S = 10.0
"""Of one call, all of it."""


class CallFailedError(Exception):
    """The address cannot be called, or did not answer; says why."""


def read_address(url: str, settings: PoolSettings) -> SplitResult:
    """Take an address apart, if it is one that may be called as far as that can be seen.

    Raises
    ------
    WebhookRefusedError
        A scheme that is not allowed, a user name, a number of a network that is not public.
    """
    try:
        parts = urlsplit(url)
        host, _port = parts.hostname, parts.port
    except ValueError as error:
        raise WebhookRefusedError(f"{url[:200]!r} is not a valid address: {error}") from error
    schemes = {"https", "http"} if settings.webhook_allow_http else {"https"}
    if parts.scheme not in schemes or not host or not url.isascii():
        raise WebhookRefusedError(
            f"{url[:200]!r} cannot be called; expected an address that begins with "
            f"{' or '.join(f'{scheme}://' for scheme in sorted(schemes))}",
            hint="The pool's admin allows http:// with POOL_SERVER_WEBHOOK_ALLOW_HTTP.",
        )
    if parts.username is not None or parts.password is not None or parts.fragment:
        raise WebhookRefusedError("the address must have no user name, password or fragment")
    literal = _literal(host)
    if literal is not None and not settings.webhook_allow_private and not is_public(literal):
        raise WebhookRefusedError(
            f"{host} is no public address",
            hint="In a closed network the pool's admin sets POOL_SERVER_WEBHOOK_ALLOW_PRIVATE.",
        )
    return parts


def call(url: str, body: bytes, headers: Mapping[str, str], settings: PoolSettings) -> int:
    """Send `body` with ``POST`` and return the status of the answer.

    Raises
    ------
    CallFailedError
        No public address, no connection, no answer in time.
    """
    try:
        parts = read_address(url, settings)
    except WebhookRefusedError as error:
        raise CallFailedError(error.message) from error
    host = parts.hostname or ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    connection = CheckedConnection(
        host,
        port,
        address=_resolve(host, port, allow_private=settings.webhook_allow_private),
        context=_tls() if parts.scheme == "https" else None,
        timeout_s=TIMEOUT_S,
    )
    # The socket's own limit is for each piece: who sends one byte at a time would never meet it.
    alarm = Timer(TIMEOUT_S, connection.abort)
    alarm.daemon = True
    alarm.start()
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    try:
        connection.request("POST", target, body, dict(headers))
        response = connection.getresponse()
        response.read(_MOST_ANSWER_BYTES)
    except (OSError, HTTPException, ValueError) as error:
        why = "no answer in time" if connection.is_aborted else str(error) or type(error).__name__
        raise CallFailedError(f"{host}: {why}") from error
    finally:
        alarm.cancel()
        connection.close()
    return response.status


def is_public(address: Address) -> bool:
    """Tell whether an address is one of the public internet: global unicast only."""
    if isinstance(address, ipaddress.IPv6Address) and (
        address not in _GLOBAL_UNICAST or any(address in each for each in _SPECIAL)
    ):
        return False
    return address.is_global and not address.is_multicast


class CheckedConnection(HTTPConnection):
    """A connection to an address that was checked, whatever the name would lead to now."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        address: str,
        context: ssl.SSLContext | None,
        timeout_s: float,
    ) -> None:
        super().__init__(host, port, timeout=timeout_s)
        self._address = address
        self._context = context
        self.is_aborted = False
        if context is not None:
            self.default_port = 443

    def connect(self) -> None:
        self.sock = socket.create_connection((self._address, self.port), self.timeout)
        if self._context is not None:
            self.sock = self._context.wrap_socket(self.sock, server_hostname=self.host)
        if self.is_aborted:
            # It was called off before there was anything that could have been ended.
            raise TimeoutError("no answer in time")

    def abort(self) -> None:
        """End a call that lasts too long, from another thread."""
        self.is_aborted = True
        if self.sock is not None:
            try:
                self.sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                return


def _resolve(host: str, port: int, *, allow_private: bool) -> str:
    """Return the first address of a host that may be called."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise CallFailedError(f"{host}: {error}") from error
    addresses = [str(entry[4][0]) for entry in found]
    for address in addresses:
        literal = _literal(address)
        if allow_private or (literal is not None and is_public(literal)):
            return address
    raise CallFailedError(f"{host} has no public address")


def _literal(host: str) -> Address | None:
    """Return the address that a host is written as; None for a name."""
    try:
        return ipaddress.ip_address(host.split("%", 1)[0])
    except ValueError:
        return None


@cache
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()
