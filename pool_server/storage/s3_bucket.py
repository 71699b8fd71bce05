"""One bucket in short words; what every S3 server answers in its own way is evened out here."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Any, BinaryIO, cast

from botocore.exceptions import ClientError

from pool_server.storage.contract import Checksum
from pool_server.storage.s3_connection import S3Connection, error_code, translated

_NOT_FOUND = frozenset({"404", "NoSuchKey", "NotFound"})
_NO_SUCH_UPLOAD = _NOT_FOUND | {"NoSuchUpload"}
_CONDITION_FAILED = frozenset(
    {"409", "412", "ConditionalRequestConflict", "PreconditionFailed", "OperationAborted"}
)
_CONDITION_UNKNOWN = frozenset({"501", "NotImplemented", "InvalidArgument"})

CHECKSUM_FIELDS: dict[Checksum, str] = {"md5": "ContentMD5", "sha256": "ChecksumSHA256"}
CHECKSUM_HEADERS: dict[Checksum, str] = {
    "md5": "Content-MD5",
    "sha256": "x-amz-checksum-sha256",
}

_HINTS_OF_CHECK: dict[int, str] = {
    HTTPStatus.NOT_FOUND: "Make the bucket first, or correct s3_bucket or s3_endpoint_url; the key "
    "must belong to the account that has it.",
    HTTPStatus.FORBIDDEN: "Correct s3_access_key_id and s3_secret_access_key, or let that key list "
    "the bucket and get, put and delete its objects.",
    HTTPStatus.MOVED_PERMANENTLY: "The bucket is in another region: correct s3_region.",
    HTTPStatus.BAD_REQUEST: "Correct s3_region, or the key: the server did not take the signature.",
}


class MultipartGoneError(Exception):
    """The multipart upload was completed or aborted; which, its object tells."""


@dataclass(frozen=True)
class StoredPart:
    """A part that the S3 server has, with what it wants to hear when the parts are joined."""

    number: int
    size_bytes: int
    naming: dict[str, Any]


def encoded(checksum: str) -> str:
    """Return a hexadecimal checksum as S3 writes it."""
    return base64.b64encode(bytes.fromhex(checksum)).decode("ascii")


class S3Bucket:
    """Requests to one bucket; each raises `StorageFailedError` or `StorageFullError`."""

    def __init__(self, connection: S3Connection) -> None:
        self.connection = connection
        self._client = connection.client

    def size_of(self, key: str) -> int | None:
        """Return the size of an object, None where there is none."""
        with translated(f"look for {key}"):
            try:
                return cast("int", self._client.head_object(**self._at(key))["ContentLength"])
            except ClientError as error:
                if error_code(error) in _NOT_FOUND:
                    return None
                raise

    def read(self, key: str, most_bytes: int) -> bytes | None:
        """Return the content of a small object, None where there is none."""
        with translated(f"read {key}"):
            try:
                body = self._client.get_object(**self._at(key))["Body"]
            except ClientError as error:
                if error_code(error) in _NOT_FOUND:
                    return None
                raise
            with body:
                return cast("bytes", body.read(most_bytes))

    def write(self, key: str, content: bytes, *, if_absent: bool = False) -> bool:
        """Write a small object; False when `if_absent` and there was one already.

        A server may know no such condition and overwrite: callers must be content with that.
        """
        arguments = {**self._at(key), **self.connection.encryption, "Body": content}
        with translated(f"write {key}"):
            if if_absent:
                try:
                    self._client.put_object(**arguments, IfNoneMatch="*")
                    return True
                except ClientError as error:
                    if error_code(error) in _CONDITION_FAILED:
                        return False
                    if error_code(error) not in _CONDITION_UNKNOWN:
                        raise
            self._client.put_object(**arguments)
            return True

    def delete(self, key: str) -> None:
        with translated(f"delete {key}"):
            self._client.delete_object(**self._at(key))

    def keys(self, prefix: str) -> Iterator[tuple[str, datetime]]:
        """Yield the keys that begin so, in their order, and when each was last written."""
        with translated(f"list {prefix}"):
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self.connection.bucket, Prefix=prefix
            )
            for page in pages:
                for each in page.get("Contents", ()):
                    yield each["Key"], each["LastModified"]

    def begin_multipart(self, key: str, checksum: Checksum | None) -> str:
        """Begin a multipart upload and return its identifier."""
        arguments = {**self._at(key), **self.connection.encryption}
        if checksum == "sha256":
            # Those that the S3 server keeps have to be named in advance.
            arguments["ChecksumAlgorithm"] = "SHA256"
        with translated("begin an upload"):
            begun = self._client.create_multipart_upload(
                **arguments, ContentType="application/octet-stream"
            )
            return cast("str", begun["UploadId"])

    def multiparts(self, prefix: str) -> Iterator[tuple[str, str, datetime]]:
        """Yield key, identifier and beginning of multipart uploads that are neither joined nor
        aborted."""
        with translated("list uploads"):
            pages = self._client.get_paginator("list_multipart_uploads").paginate(
                Bucket=self.connection.bucket, Prefix=prefix
            )
            for page in pages:
                for each in page.get("Uploads", ()):
                    yield each["Key"], each["UploadId"], each["Initiated"]

    def parts(self, key: str, multipart_id: str) -> list[StoredPart]:
        """Return the parts of a multipart upload."""
        found = []
        with translated("list parts"):
            try:
                pages = self._client.get_paginator("list_parts").paginate(
                    **self._at(key), UploadId=multipart_id
                )
                for page in pages:
                    found += [_stored_part(each) for each in page.get("Parts", ())]
            except ClientError as error:
                raise _gone_or(error) from error
        return found

    def put_part(
        self, key: str, multipart_id: str, number: int, content: BinaryIO, **more: Any
    ) -> None:
        """Send one part from here."""
        with translated("keep a part"):
            try:
                self._client.upload_part(
                    **self._at(key),
                    UploadId=multipart_id,
                    PartNumber=number,
                    Body=content,
                    **more,
                )
            except ClientError as error:
                raise _gone_or(error) from error

    def join(self, key: str, multipart_id: str, parts: list[StoredPart]) -> None:
        """Make one object of all parts."""
        with translated("join the parts"):
            try:
                self._client.complete_multipart_upload(
                    **self._at(key),
                    UploadId=multipart_id,
                    MultipartUpload={"Parts": [part.naming for part in parts]},
                )
            except ClientError as error:
                raise _gone_or(error) from error

    def abort(self, key: str, multipart_id: str) -> None:
        """Forget a multipart upload and its parts, if they are there."""
        with translated("abort an upload"):
            try:
                self._client.abort_multipart_upload(**self._at(key), UploadId=multipart_id)
            except ClientError as error:
                if error_code(error) not in _NO_SUCH_UPLOAD:
                    raise

    def signed_url(self, operation: str, lifetime: timedelta, key: str, **arguments: Any) -> str:
        """Return an address good for one request; sends nothing."""
        with translated("sign an address"):
            return cast(
                "str",
                self.connection.signing_client.generate_presigned_url(
                    operation,
                    Params={**self._at(key), **arguments},
                    ExpiresIn=int(lifetime.total_seconds()),
                ),
            )

    def require_answer(self) -> None:
        """Raise `StorageFailedError` unless the bucket answers, soon."""
        with translated(f"reach the bucket {self.connection.place}", _HINTS_OF_CHECK):
            self.connection.check_client.head_bucket(Bucket=self.connection.bucket)

    def _at(self, key: str) -> dict[str, Any]:
        return self.connection.arguments(key)


def _stored_part(each: dict[str, Any]) -> StoredPart:
    naming = {"PartNumber": each["PartNumber"], "ETag": each["ETag"]}
    if each.get("ChecksumSHA256"):
        naming["ChecksumSHA256"] = each["ChecksumSHA256"]
    return StoredPart(each["PartNumber"], each["Size"], naming)


def _gone_or(error: ClientError) -> Exception:
    return MultipartGoneError() if error_code(error) in _NO_SUCH_UPLOAD else error
