"""Connections to an S3 server, and the requests for one bucket.

The differences between S3 servers are handled here. Only the ``s3`` modules know boto3.
"""

import base64
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Any, BinaryIO, TypeVar, cast
from urllib.parse import urlsplit

import boto3
import urllib3
from boto3.s3.transfer import S3TransferRetriesExceededError
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    IncompleteReadError,
    ResponseStreamingError,
)
from botocore.parsers import ResponseParserError

from pool_server.errors import StartError, StorageFailedError
from pool_server.settings import PoolSettings, setting_name
from pool_server.storage.contract import Checksum, disk_refusal, no_room

# Requests of the server itself, several of which may be open at once.
MOST_CONNECTIONS = 32
CONNECT_TIMEOUT_S = 5.0
# Joining a file of many parts takes long on some servers.
READ_TIMEOUT_S = 120.0
ATTEMPTS = 4
# Most requests are short: a storage that works answers them at once.
SHORT_TIMEOUT_S = 5.0
SHORT_ATTEMPTS = 2
# Fewer than there are threads and connections to the database: while all of these hang, pages and
# searches, which need no storage, go on.
SHORT_AT_ONCE = 12
LONGEST_WAIT_S = 0.5
# So many failures in a row, and nothing is sent for a while but one request to try it.
MOST_FAILURES = 5
PAUSE_S = 5

T = TypeVar("T")

_NO_HINTS: Mapping[int, str] = {}
_FULL = frozenset(
    {"507", "InsufficientStorage", "QuotaExceeded", "InsufficientCapacity", "XMinioStorageFull"}
)
# https://docs.aws.amazon.com/AmazonS3/latest/userguide/bucketnamingrules.html, and the older,
# wider rules that other servers keep.
_BUCKET = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]{1,253}[A-Za-z0-9]$")


def require_settings(settings: PoolSettings) -> None:
    """Raise `StartError` for settings with which no bucket can be used."""
    key_id = settings.s3_access_key_id.get_secret_value()
    secret = settings.s3_secret_access_key.get_secret_value()
    if not _BUCKET.fullmatch(settings.s3_bucket):
        raise _refuse_setting(
            "S3_BUCKET", f"{settings.s3_bucket!r}", "the name of a bucket that is there already"
        )
    for name in ("s3_endpoint_url", "s3_public_endpoint_url"):
        address = str(getattr(settings, name))
        parts = urlsplit(address)
        if address and (parts.scheme not in {"http", "https"} or not parts.hostname):
            raise _refuse_setting(name.upper(), f"{address!r}", "http://HOST:PORT or https://HOST")
        if parts.username or parts.password:
            raise _refuse_setting(name.upper(), "one with a password in it", "the address alone")
    if bool(key_id) != bool(secret):
        missing = "S3_SECRET_ACCESS_KEY" if key_id else "S3_ACCESS_KEY_ID"
        raise _refuse_setting(
            missing, "nothing", "a value, because the other half of the key is given"
        )
    if settings.part_bytes < settings.s3_least_part_bytes:
        raise _refuse_setting(
            "PART_BYTES",
            f"{settings.part_bytes:,}",
            f"at least the {settings.s3_least_part_bytes:,} bytes of S3_LEAST_PART_BYTES",
        )


def _refuse_setting(name: str, value: str, expected: str) -> StartError:
    return StartError(
        f"{setting_name(name.lower())} is {value}, expected {expected}",
        code="storage_settings",
        hint="With the storage s3 the model files lie in a bucket; without it, in the data folder.",
    )


def _open_client(
    session: Any, settings: PoolSettings, endpoint_url: str, timeout_s: float, attempts: int
) -> Any:
    return session.client(
        "s3",
        endpoint_url=endpoint_url or None,
        region_name=settings.s3_region or None,
        aws_access_key_id=settings.s3_access_key_id.get_secret_value() or None,
        aws_secret_access_key=settings.s3_secret_access_key.get_secret_value() or None,
        config=Config(
            signature_version="s3v4",
            s3={"addressing_style": _addressing_style(settings, endpoint_url)},
            connect_timeout=min(CONNECT_TIMEOUT_S, timeout_s),
            read_timeout=timeout_s,
            retries={"mode": "standard", "total_max_attempts": attempts},
            max_pool_connections=MOST_CONNECTIONS,
            # Checksums are asked for where they are wanted; not every server knows the newest.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
            user_agent_extra="poolctl",
        ),
    )


def _addressing_style(settings: PoolSettings, endpoint_url: str) -> str:
    """Return how buckets are named to boto3.

    Left to itself, boto3 signs addresses for the one host of all of Amazon's regions. That leads
    on to the region where a bucket is new, and the signature is not good there.
    """
    if settings.s3_addressing_style == "auto" and not endpoint_url:
        return "virtual"
    return settings.s3_addressing_style


def error_code(error: ClientError) -> str:
    """Return S3's word for an error (``"NoSuchKey"``), or the status where it has none."""
    return cast("str", error.response.get("Error", {}).get("Code", ""))


@contextmanager
def translate_errors(act: str, hints: Mapping[int, str] = _NO_HINTS) -> Iterator[None]:
    """Translate errors of boto3 and the network into the server's own.

    `act` names the failed act, as in "begin an upload"; `hints` give advice by HTTP status.
    """
    try:
        yield
    except ClientError as error:
        code = error_code(error)
        if code in _FULL:
            raise no_room() from error
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        said = error.response.get("Error", {}).get("Message", "")
        # An answer without a body has no word of S3's for it.
        named = [str(status or "no status"), code if code != str(status) else ""]
        answer = " ".join(filter(None, named)) + (f": {said}" if said else "")
        hint = _CLOCK_HINT if code == "RequestTimeTooSkewed" else hints.get(status, "")
        raise StorageFailedError(
            f"cannot {act}: the S3 server answered {answer}", hint=hint
        ) from error
    except (BotoCoreError, S3TransferRetriesExceededError, urllib3.exceptions.HTTPError) as error:
        raise StorageFailedError(f"cannot {act}: {type(error).__name__}: {error}") from error
    except OSError as error:
        raise disk_refusal(act, error) from error
    except DAMAGED as error:
        raise StorageFailedError(
            f"cannot {act}: the S3 server's answer is damaged: {error!r}"
        ) from error


_CLOCK_HINT = "Set the clock of this machine, or that of the S3 server."
# Signs that an answer was cut short or changed on its way. boto3 repeats requests, but not these.
DAMAGED = (
    KeyError,
    TypeError,
    ValueError,
    ResponseParserError,
    IncompleteReadError,
    ResponseStreamingError,
    urllib3.exceptions.ProtocolError,
)
_NOT_FOUND = frozenset({"404", "NoSuchKey", "NotFound"})
_NO_SUCH_UPLOAD = _NOT_FOUND | {"NoSuchUpload"}
_CONDITION_FAILED = frozenset(
    {"409", "412", "ConditionalRequestConflict", "PreconditionFailed", "OperationAborted"}
)
_UNKNOWN = frozenset({"501", "NotImplemented", "InvalidArgument", "InvalidRequest"})
_WRONG_CHECKSUM = frozenset({"BadDigest", "InvalidDigest", "XAmzContentChecksumMismatch"})

CHECKSUM_FIELDS: dict[Checksum, str] = {"md5": "ContentMD5", "sha256": "ChecksumSHA256"}
CHECKSUM_HEADERS: dict[Checksum, str] = {"md5": "Content-MD5", "sha256": "x-amz-checksum-sha256"}

_HINTS_OF_CHECK: dict[int, str] = {
    HTTPStatus.NOT_FOUND: "Make the bucket first, or correct s3_bucket or s3_endpoint_url; the key "
    "must belong to the account that has it.",
    HTTPStatus.FORBIDDEN: "Correct s3_access_key_id and s3_secret_access_key, or let that key list "
    "the bucket and get, put and delete its objects.",
    HTTPStatus.MOVED_PERMANENTLY: "The bucket is in another region: correct s3_region.",
    HTTPStatus.BAD_REQUEST: "Correct s3_region, or the key: the server did not take the signature.",
}


class MultipartGoneError(Exception):
    """The multipart upload was completed or aborted; whether its object exists shows which."""


@dataclass(frozen=True)
class StoredPart:
    """A part that the S3 server has, with its entry in the request that joins the parts."""

    number: int
    size_bytes: int
    naming: dict[str, object]


class Breaker:
    """Refuses requests at once while the last ones to the storage have all failed.

    After a pause one request tries it, and its success lets the others go on.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._failures = 0
        self._next_try_s = 0.0

    def require_hope(self) -> None:
        """Raise `StorageFailedError` if the storage has failed, and is not tried again yet."""
        with self._lock:
            left_s = self._next_try_s - time.monotonic()
            if self._failures < MOST_FAILURES:
                return
            if left_s <= 0:
                self._next_try_s = time.monotonic() + PAUSE_S
                return
        raise StorageFailedError(
            f"the S3 server failed {MOST_FAILURES} times in a row; it is tried again soon",
            details={"retry_after_s": int(left_s) + 1},
        )

    def note(self, *, is_answered: bool) -> None:
        with self._lock:
            self._failures = 0 if is_answered else self._failures + 1
            if not is_answered:
                self._next_try_s = time.monotonic() + PAUSE_S


def is_answer(error: Exception) -> bool:
    """Return whether an error is the word of a storage that works."""
    if not isinstance(error, ClientError):
        return isinstance(error, MultipartGoneError)
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return status < HTTPStatus.INTERNAL_SERVER_ERROR or error_code(error) in _FULL


def encode_checksum(checksum: str) -> str:
    """Return a hexadecimal checksum as S3 writes it."""
    return base64.b64encode(bytes.fromhex(checksum)).decode("ascii")


class S3Bucket:
    """Requests to one bucket; each raises `StorageFailedError` or `StorageFullError`.

    `client` makes the server's own requests; all values that boto3 could choose by itself and that
    changed between its versions are set here.
    """

    def __init__(self, settings: PoolSettings) -> None:
        require_settings(settings)
        self.name = settings.s3_bucket
        internal, public = settings.s3_endpoint_url, settings.s3_public_endpoint_url
        with translate_errors("open the S3 storage"):
            session = boto3.session.Session()
            self.client = _open_client(session, settings, internal, READ_TIMEOUT_S, ATTEMPTS)
            self.short_client = _open_client(
                session, settings, internal, SHORT_TIMEOUT_S, SHORT_ATTEMPTS
            )
            # Makes addresses for the sites, who may reach the S3 server under another one.
            self._signing_client = (
                _open_client(session, settings, public, READ_TIMEOUT_S, 1)
                if public
                else self.client
            )

        self._breaker = Breaker()
        self._turns = threading.BoundedSemaphore(SHORT_AT_ONCE)

    def ask(self, act: str, send: Callable[[Any], T], hints: Mapping[int, str] = _NO_HINTS) -> T:
        """Send a short request and read its answer, once more where that was damaged.

        `send` gets the client of boto3. Nothing waits for long where the storage does not answer.
        """
        if not self._turns.acquire(timeout=LONGEST_WAIT_S):
            raise StorageFailedError(
                f"cannot {act}: {SHORT_AT_ONCE} requests to the S3 server are under way",
                details={"retry_after_s": 1},
            )
        try:
            with translate_errors(act, hints):
                try:
                    return self._ask(send)
                except DAMAGED:
                    return self._ask(send)
        finally:
            self._turns.release()

    def _ask(self, send: Callable[[Any], T]) -> T:
        self._breaker.require_hope()
        try:
            answer = send(self.short_client)
        except Exception as error:
            self._breaker.note(is_answered=is_answer(error))
            raise
        self._breaker.note(is_answered=True)
        return answer

    def at(self, key: str) -> dict[str, Any]:
        """Return the arguments of a request for an object."""
        return {"Bucket": self.name, "Key": key}

    def size_of(self, key: str) -> int | None:
        """Return the size of an object, or None."""

        def send(client: Any) -> int | None:
            try:
                return int(client.head_object(**self.at(key))["ContentLength"])
            except ClientError as error:
                if error_code(error) in _NOT_FOUND:
                    return None
                raise

        return self.ask(f"look for {key}", send)

    def read(self, key: str, most_bytes: int) -> bytes | None:
        """Return the content of a small object, or None."""

        def send(client: Any) -> bytes | None:
            try:
                body = client.get_object(**self.at(key))["Body"]
            except ClientError as error:
                if error_code(error) in _NOT_FOUND:
                    return None
                raise
            with body:
                return cast("bytes", body.read(most_bytes))

        return self.ask(f"read {key}", send)

    def write(self, key: str, content: bytes, *, if_absent: bool = False) -> bool:
        """Write a small object; False when `if_absent` and there was one already.

        A server may know no such condition and overwrite: callers must be content with that.
        """
        arguments = {**self.at(key), "Body": content}

        def send(client: Any) -> bool:
            if if_absent:
                try:
                    client.put_object(**arguments, IfNoneMatch="*")
                    return True
                except ClientError as error:
                    if error_code(error) in _CONDITION_FAILED:
                        return False
                    if error_code(error) not in _UNKNOWN:
                        raise
            client.put_object(**arguments)
            return True

        return self.ask(f"write {key}", send)

    def verifies_sha256(self, key: str) -> bool:
        """Return whether the server refuses content that has not the announced SHA-256.

        It is asked to keep such content at `key`; nothing stays there.
        """
        wrong = encode_checksum("0" * 64)

        def send(client: Any) -> bool:
            try:
                client.put_object(**self.at(key), Body=b"probe", ChecksumSHA256=wrong)
            except ClientError as error:
                if error_code(error) not in _WRONG_CHECKSUM | _UNKNOWN:
                    raise
                return error_code(error) in _WRONG_CHECKSUM
            client.delete_object(**self.at(key))
            return False

        return self.ask("try a checksum", send)

    def delete(self, key: str) -> None:
        self.ask(f"delete {key}", lambda client: client.delete_object(**self.at(key)))

    def keys(self, prefix: str) -> Iterator[tuple[str, datetime]]:
        """Yield the keys that begin so, in their order, and when each was last written."""
        with translate_errors(f"list {prefix}"):
            pages = self.client.get_paginator("list_objects_v2").paginate(
                Bucket=self.name, Prefix=prefix
            )
            for page in pages:
                for entry in page.get("Contents", ()):
                    yield entry["Key"], entry["LastModified"]

    def begin_multipart(self, key: str, checksum: Checksum) -> str:
        """Begin a multipart upload and return its identifier."""
        arguments = self.at(key)
        if checksum == "sha256":
            # Those that the S3 server keeps must be named in advance.
            arguments["ChecksumAlgorithm"] = "SHA256"

        def send(client: Any) -> str:
            begun = client.create_multipart_upload(
                **arguments, ContentType="application/octet-stream"
            )
            identifier = str(begun["UploadId"])
            # With a damaged identifier all parts would lead nowhere.
            try:
                client.list_parts(**self.at(key), UploadId=identifier)
            except ClientError as error:
                if error_code(error) in _NO_SUCH_UPLOAD:
                    raise ValueError("the S3 server does not know its own UploadId") from error
                raise
            return identifier

        return self.ask("begin an upload", send)

    def multiparts(self, prefix: str) -> Iterator[tuple[str, str, datetime]]:
        """Yield key, identifier and beginning of multipart uploads that are neither joined nor
        aborted."""
        with translate_errors("list uploads"):
            pages = self.client.get_paginator("list_multipart_uploads").paginate(
                Bucket=self.name, Prefix=prefix
            )
            for page in pages:
                for entry in page.get("Uploads", ()):
                    yield entry["Key"], entry["UploadId"], entry["Initiated"]

    def parts(self, key: str, multipart_id: str) -> list[StoredPart]:
        """Return the parts of a multipart upload."""

        def send(client: Any) -> list[StoredPart]:
            try:
                pages = client.get_paginator("list_parts").paginate(
                    **self.at(key), UploadId=multipart_id
                )
                return [_read_part(entry) for page in pages for entry in page.get("Parts", ())]
            except ClientError as error:
                raise _gone_or(error) from error

        return self.ask("list parts", send)

    def put_part(
        self, key: str, multipart_id: str, number: int, content: BinaryIO, **more: Any
    ) -> None:
        """Send one part from here."""
        with translate_errors("keep a part"):
            try:
                self.client.upload_part(
                    **self.at(key), UploadId=multipart_id, PartNumber=number, Body=content, **more
                )
            except ClientError as error:
                raise _gone_or(error) from error

    def join(self, key: str, multipart_id: str, parts: list[StoredPart]) -> None:
        """Make one object of all parts."""
        with translate_errors("join the parts"):
            try:
                self.client.complete_multipart_upload(
                    **self.at(key),
                    UploadId=multipart_id,
                    MultipartUpload={"Parts": [part.naming for part in parts]},
                )
            except ClientError as error:
                raise _gone_or(error) from error

    def abort(self, key: str, multipart_id: str) -> None:
        """Forget a multipart upload and its parts, if they are there."""

        def send(client: Any) -> None:
            try:
                client.abort_multipart_upload(**self.at(key), UploadId=multipart_id)
            except ClientError as error:
                if error_code(error) not in _NO_SUCH_UPLOAD:
                    raise

        self.ask("abort an upload", send)

    def sign_url(self, operation: str, lifetime: timedelta, key: str, **arguments: Any) -> str:
        """Return an address good for one request; sends nothing."""
        with translate_errors("sign an address"):
            return cast(
                "str",
                self._signing_client.generate_presigned_url(
                    operation,
                    Params={**self.at(key), **arguments},
                    ExpiresIn=int(lifetime.total_seconds()),
                ),
            )

    def require_answer(self) -> None:
        """Raise `StorageFailedError` unless the bucket answers, soon."""
        place = f"{self.name!r} at {self.client.meta.endpoint_url}"
        self.ask(
            f"reach the bucket {place}",
            lambda client: client.head_bucket(Bucket=self.name),
            _HINTS_OF_CHECK,
        )


def _read_part(part: dict[str, Any]) -> StoredPart:
    naming = {"PartNumber": part["PartNumber"], "ETag": part["ETag"]}
    if part.get("ChecksumSHA256"):
        naming["ChecksumSHA256"] = part["ChecksumSHA256"]
    return StoredPart(part["PartNumber"], part["Size"], naming)


def _gone_or(error: ClientError) -> Exception:
    return MultipartGoneError() if error_code(error) in _NO_SUCH_UPLOAD else error
