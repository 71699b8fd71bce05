"""Requests to a pool: sent, repeated where that is safe, and failures sorted by type.

This module and `storage_connection` are the only ones that know httpx.
"""

import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import cached_property
from typing import Any, Literal, TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from aggregators.errors import first_problem
from pool_server.wire.errors import ErrorBody, ErrorResponse
from pool_server.wire.names import Page
from pool_server.wire.versions import API_VERSION, VERSION_HEADER
from site_agent import errors
from site_agent.pool import profiles, sent
from site_agent.pool.requests import require_subject
from site_agent.pool.storage_connection import StorageConnection, open_http_client, read_whole

Answer = TypeVar("Answer", bound=BaseModel)
Item = TypeVar("Item")
Content = bytes | Callable[[], Iterable[bytes]]
"""Bytes to send, or a function that starts giving them again for each attempt."""

PAGE_SIZE = 100
_PASSING_STATUS = frozenset({408, 429, 502, 503, 504})
_LEADING_STATUS = frozenset({302, 303, 307, 308})
_FILE_REFUSALS = frozenset(
    {
        "format_refused",
        "digest_mismatch",
        "recipe_refused",
        "contribution_refused",
        "statement_refused",
    }
)
_WITHDRAWN = frozenset({"version_withdrawn", "bytes_withdrawn"})
_LONGEST_WAIT_S = 60.0


class RetryBudget:
    """The attempts of one request without any progress in between, and the waits between them.

    The first wait is doubled each time, with a little chance in it so that several clients do not
    come back at once.
    """

    def __init__(self, attempts: int, first_wait_s: float) -> None:
        self._attempts = attempts
        self._first_wait_s = first_wait_s
        self._failures = 0

    def wait_or_raise(self, error: errors.PoolClientError, wanted_s: float | None = None) -> None:
        """Wait, or raise `error` when there have been enough attempts."""
        self._failures += 1
        if self._failures >= self._attempts or (wanted_s or 0.0) > _LONGEST_WAIT_S:
            raise error
        backoff_s = self._first_wait_s * 2 ** (self._failures - 1) * random.uniform(0.8, 1.2)
        time.sleep(min(max(backoff_s, wanted_s or 0.0), _LONGEST_WAIT_S))

    def renew(self) -> None:
        """Forget the failures, because something got through."""
        self._failures = 0


class PoolConnection:
    """A connection to one pool; `token` is sent to this pool only, None sends none.

    `attempts` counts the tries of a request that may safely be repeated. `storage` is for addresses
    that the pool gives where its storage takes and gives the bytes itself.
    """

    def __init__(
        self, endpoint: str, token: str | None, *, timeout_s: float = 30.0, attempts: int = 5
    ) -> None:
        self.endpoint = endpoint
        self.storage = StorageConnection(timeout_s=timeout_s)
        self._token = token
        self._timeout_s = timeout_s
        self._attempts = attempts
        self._ahead = timedelta()

    @property
    def _client(self) -> httpx.Client:
        self._require_login()
        return self._http_client

    @cached_property
    def _http_client(self) -> httpx.Client:
        return open_http_client(
            self.endpoint,
            httpx.Timeout(self._timeout_s, connect=min(self._timeout_s, 10.0)),
            base_url=self.endpoint,
            headers={"Accept-Encoding": "identity", VERSION_HEADER: str(API_VERSION)}
            | ({"Authorization": f"Bearer {self._token}"} if self._token else {}),
        )

    def _require_login(self) -> None:
        if profiles.is_offline():
            raise errors.PoolUnreachableError(
                "POOL_OFFLINE is set, and this needs the pool", hint="unset POOL_OFFLINE"
            )
        if not self.endpoint:
            raise errors.NotLoggedInError(
                "no pool is known: log in to one, or set POOL_ENDPOINT and POOL_TOKEN"
            )
        # None is a connection without a login, as for accepting an invitation.
        if self._token == "":
            raise errors.NotLoggedInError(
                f"not logged in to {self.endpoint}, and POOL_TOKEN is not set",
                hint=f"log in with: poolctl auth login {self.endpoint}",
            )

    def close(self) -> None:
        """Close all connections; the next request opens one again."""
        if "_http_client" in self.__dict__:
            self._http_client.close()
            del self._http_client
        self.storage.close()

    def patience(self) -> RetryBudget:
        return RetryBudget(self._attempts, first_wait_s=0.25)

    def get(
        self, path: str, answer: type[Answer], params: Mapping[str, Any] | None = None
    ) -> Answer:
        """Send a GET request; repeated when the pool does not answer."""
        return self.read(self.send("GET", path, params=params), answer)

    def pages(
        self, path: str, page: type[Page[Item]], params: Mapping[str, Any] | None = None
    ) -> Iterator[Item]:
        """Yield the items of a list that the pool gives page by page."""
        query: dict[str, Any] = {"limit": PAGE_SIZE} | dict(params or {})
        while True:
            answer = self.get(path, page, query)
            yield from answer.items
            if not answer.next_cursor:
                return
            query["cursor"] = answer.next_cursor

    def post(
        self,
        path: str,
        answer: type[Answer],
        body: BaseModel | None = None,
        *,
        repeatable: bool = False,
        timeout_s: float | None = None,
    ) -> Answer:
        """Have something done; repeated only where doing it twice is the same as once."""
        content = b"" if body is None else body.model_dump_json().encode()
        response = self.send(
            "POST",
            path,
            content=content,
            headers={"Content-Type": "application/json"},
            repeatable=repeatable,
            timeout_s=timeout_s,
        )
        return self.read(response, answer)

    def write(
        self, method: Literal["PUT", "PATCH"], path: str, answer: type[Answer], body: BaseModel
    ) -> Answer:
        """Send a PUT request with `body`; repeating it has no further effect.

        Fields that were not set on `body` are not sent.
        """
        response = self.send(
            method,
            path,
            content=body.model_dump_json(exclude_unset=True).encode(),
            headers={"Content-Type": "application/json"},
        )
        return self.read(response, answer)

    def send(
        self,
        method: str,
        url: str,
        *,
        params: Mapping[str, Any] | None = None,
        content: Content = b"",
        headers: Mapping[str, str] | None = None,
        repeatable: bool = True,
        timeout_s: float | None = None,
    ) -> httpx.Response:
        """Send one request, with retries if necessary, and return the answer.

        Parameters that are None, empty or False are not sent.
        """
        query = {
            name: item
            for name, item in (params or {}).items()
            if item not in (None, "") and item is not False
        }
        patience = self.patience() if repeatable else RetryBudget(1, 0.0)
        if method != "GET" and isinstance(content, bytes):
            self._require_login()
            sent.note_request(self.endpoint, url, content)
        while True:
            request = self._client.build_request(
                method,
                url,
                params=query or None,
                content=content if isinstance(content, bytes) else content(),
                headers=headers,
                timeout=httpx.USE_CLIENT_DEFAULT if timeout_s is None else timeout_s,
            )
            self._guard_token(request)
            try:
                response = read_whole(self._client.send(request, stream=True))
            except httpx.TransportError as error:
                patience.wait_or_raise(self._unreachable(error))
                continue
            if response.is_success:
                self._note_clock(response)
                return response
            failure = self._failure(response)
            if response.status_code not in _PASSING_STATUS:
                raise failure
            patience.wait_or_raise(failure, _retry_after_s(response))

    @contextmanager
    def stream(self, url: str, headers: Mapping[str, str]) -> Iterator[httpx.Response]:
        """Start receiving bytes; one attempt, and the line may also break inside the block.

        A redirect to the pool's storage is returned as it is.
        """
        request = self._client.build_request("GET", url, headers=headers)
        self._guard_token(request)
        try:
            response = self._client.send(request, stream=True)
            try:
                if not response.is_success and response.status_code not in _LEADING_STATUS:
                    raise self._failure(read_whole(response))
                yield response
            finally:
                response.close()
        except (httpx.TransportError, httpx.StreamError) as error:
            raise self._unreachable(error) from error

    def now(self) -> datetime:
        """Return the time by the pool's clock, as of its last answer; without one, by this one."""
        return datetime.now(UTC) + self._ahead

    def _note_clock(self, response: httpx.Response) -> None:
        with suppress(KeyError, ValueError, TypeError):
            self._ahead = parsedate_to_datetime(response.headers["Date"]) - datetime.now(UTC)

    def _guard_token(self, request: httpx.Request) -> None:
        """Keep the token from other hosts: a pool may send us to its storage."""
        base_url = httpx.URL(self.endpoint)
        if (request.url.scheme, request.url.netloc) != (base_url.scheme, base_url.netloc):
            request.headers.pop("Authorization", None)

    def read(self, response: httpx.Response, answer: type[Answer]) -> Answer:
        """Return an answer as its type, and require that it matches the request."""
        try:
            content = answer.model_validate_json(response.content)
        except ValidationError as error:
            raise errors.PoolAnswerError(
                f"{self.endpoint} answered with something that is not a {answer.__name__}: "
                f"{first_problem(error)}",
                hint="is this the address of a pool, and of one that this version can talk to?",
            ) from error
        require_subject(response.request.url.path, content)
        return content

    def _unreachable(self, error: Exception) -> errors.PoolUnreachableError:
        why = str(error).strip() or type(error).__name__
        if "CERTIFICATE_VERIFY_FAILED" in why:
            return errors.PoolUnreachableError(
                f"{self.endpoint} shows a certificate that does not prove it: {why}",
                hint="somebody may stand between you and the pool. Ask its admin for the address "
                "with the certificate's fingerprint, and log in by it: poolctl auth login "
                "'https://HOST:PORT#sha256=HEX'",
            )
        if isinstance(error, httpx.RemoteProtocolError) and self.endpoint.startswith("http://"):
            return errors.PoolUnreachableError(
                f"the pool at {self.endpoint} does not answer in plain HTTP: {why}",
                hint="it may speak TLS: try https, as in poolctl auth login "
                f"{self.endpoint.replace('http', 'https', 1)}",
            )
        return errors.PoolUnreachableError(
            f"no answer from the pool at {self.endpoint}: {why}",
            hint="is it running, and is the address right (poolctl env)? Then run the same "
            "command again; transfers go on where they stopped",
        )

    def _failure(self, response: httpx.Response) -> errors.PoolClientError:
        status = response.status_code
        try:
            body = ErrorResponse.model_validate_json(response.content).error
        except ValidationError:
            body = ErrorBody(
                code="", message=f"{self.endpoint} answered {status} {response.reason_phrase}"
            )
        kind = _error_type(status, body.code)
        wait_s = _retry_after_s(response)
        hint = body.hint or (f"try again in {wait_s:.0f} s" if wait_s else "")
        return kind(body.message, hint=hint, code=body.code)


class Resource:
    """The routes of one noun; the methods take the fields of the requests that they send."""

    def __init__(self, connection: PoolConnection) -> None:
        self._pool = connection


def _error_type(status: int, code: str) -> type[errors.PoolClientError]:
    by_status: dict[int, type[errors.PoolClientError]] = {
        401: errors.NotLoggedInError,
        403: errors.ForbiddenError,
        404: errors.NotFoundError,
        409: errors.ConflictError,
        410: errors.NotFoundError,
        413: errors.ConflictError,
        507: errors.ConflictError,
    }
    if code in _FILE_REFUSALS:
        return errors.PoolRefusedFileError
    if code in _WITHDRAWN:
        return errors.WithdrawnError
    if status in by_status:
        return by_status[status]
    if status in _PASSING_STATUS or status >= 500:
        return errors.PoolUnreachableError
    return errors.PoolAnswerError if status < 400 else errors.PoolRefusedRequestError


def _retry_after_s(response: httpx.Response) -> float | None:
    """Return the seconds of ``Retry-After``; None where it is missing or not a number."""
    text = response.headers.get("Retry-After", "").strip()
    return float(text) if text.isdigit() else None
