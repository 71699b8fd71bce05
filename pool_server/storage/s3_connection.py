"""How the server speaks to an S3 server: settings, clients, and what its errors mean.

Here and in the other ``s3`` modules is all that knows boto3.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast
from urllib.parse import urlsplit

import boto3
import urllib3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from pool_server.errors import StartError, StorageFailedError
from pool_server.settings import PoolSettings, setting_name
from pool_server.storage.verification import disk_refusal, no_room

# Requests of the server itself, several of which may be open at once.
MOST_CONNECTIONS = 32
CONNECT_TIMEOUT_S = 5.0
# Joining a file of many parts takes long on some servers.
READ_TIMEOUT_S = 120.0
# What says whether the storage answers has to answer itself.
CHECK_TIMEOUT_S = 5.0
ATTEMPTS = 4

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
        raise _refused(
            "S3_BUCKET", f"{settings.s3_bucket!r}", "the name of a bucket that is there already"
        )
    for name in ("s3_endpoint_url", "s3_public_endpoint_url"):
        address = str(getattr(settings, name))
        parts = urlsplit(address)
        if address and (parts.scheme not in {"http", "https"} or not parts.hostname):
            raise _refused(name.upper(), f"{address!r}", "http://HOST:PORT or https://HOST")
        if parts.username or parts.password:
            raise _refused(name.upper(), "one with a password in it", "the address alone")
    if bool(key_id) != bool(secret):
        missing = "S3_SECRET_ACCESS_KEY" if key_id else "S3_ACCESS_KEY_ID"
        raise _refused(missing, "nothing", "a value, because the other half of the key is given")
    if settings.s3_sse_kms_key_id and not settings.s3_sse.startswith("aws:kms"):
        raise _refused("S3_SSE", f"{settings.s3_sse!r}", "aws:kms, because a key for it is given")
    if settings.part_bytes < settings.s3_least_part_bytes:
        raise _refused(
            "PART_BYTES",
            f"{settings.part_bytes:,}",
            f"at least the {settings.s3_least_part_bytes:,} bytes of S3_LEAST_PART_BYTES",
        )


def _refused(name: str, found: str, expected: str) -> StartError:
    return StartError(
        f"{setting_name(name.lower())} is {found}, expected {expected}",
        code="storage_settings",
        hint="With the storage s3 the model files lie in a bucket; without it, in the data folder.",
    )


class S3Connection:
    """Clients for one bucket.

    Attributes
    ----------
    client : botocore client
        For the server's own requests. All values that boto3 could choose by itself and that
        changed between its versions are set here.
    check_client : botocore client
        Fails soon.
    signing_client : botocore client
        Makes addresses for the sites, who may reach the S3 server under another one; sends
        nothing.
    bucket : str
    encryption : mapping
        Arguments of each request that makes an object.
    """

    def __init__(self, settings: PoolSettings) -> None:
        require_settings(settings)
        self.bucket = settings.s3_bucket
        self.encryption: dict[str, str] = {}
        if settings.s3_sse:
            self.encryption["ServerSideEncryption"] = settings.s3_sse
        if settings.s3_sse_kms_key_id:
            self.encryption["SSEKMSKeyId"] = settings.s3_sse_kms_key_id
        own, public = settings.s3_endpoint_url, settings.s3_public_endpoint_url
        with translated("open the S3 storage"):
            session = boto3.session.Session()
            self.client = _open_client(session, settings, own, READ_TIMEOUT_S, ATTEMPTS)
            self.check_client = _open_client(session, settings, own, CHECK_TIMEOUT_S, 1)
            self.signing_client = (
                _open_client(session, settings, public, READ_TIMEOUT_S, 1)
                if public
                else self.client
            )

    @property
    def place(self) -> str:
        """The bucket and where it is, for messages."""
        return f"{self.bucket!r} at {self.client.meta.endpoint_url}"

    def arguments(self, key: str) -> dict[str, Any]:
        return {"Bucket": self.bucket, "Key": key}


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
def translated(act: str, hints: Mapping[int, str] = _NO_HINTS) -> Iterator[None]:
    """Turn what boto3 and the network say into the server's own errors.

    Parameters
    ----------
    act : str
        What cannot be done if it fails.
    hints : mapping
        What to do about each status of an answer.
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
        raise StorageFailedError(
            f"cannot {act}: the S3 server answered {answer}", hint=hints.get(status, "")
        ) from error
    except (BotoCoreError, urllib3.exceptions.HTTPError) as error:
        raise StorageFailedError(f"cannot {act}: {type(error).__name__}: {error}") from error
    except OSError as error:
        raise disk_refusal(act, error) from error
