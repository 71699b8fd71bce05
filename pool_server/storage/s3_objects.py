"""Objects in a bucket: their keys, reading them, and writing parts of uploads."""

import hashlib
import io
import json
import os
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any, BinaryIO

import urllib3
from botocore.exceptions import BotoCoreError

from pool_server.errors import StorageFailedError
from pool_server.storage import contract, s3_bucket
from pool_server.storage.scratch import ScratchFolder, write_all

# Object stores limit what one connection gets; two ranges at once arrive up to twice as fast. With
# more, the memory grows.
RANGE_BYTES = 8 * 1024 * 1024
RANGES_AT_ONCE = 2
# boto3 repeats requests, but not the reading of an answer that breaks off.
READ_ATTEMPTS = 4
_BROKEN_OFF = (BotoCoreError, urllib3.exceptions.HTTPError, ConnectionError, TimeoutError)


class ObjectReader(io.RawIOBase):
    """An object as a file, up to `size_bytes`: seekable, unbuffered, read-only.

    A request is made at the first reading, and again after moving elsewhere; bytes between
    are not fetched. Each reading fills all that was asked for, up to the end.
    """

    def __init__(self, bucket: s3_bucket.S3Bucket, key: str, size_bytes: int) -> None:
        super().__init__()
        self._bucket = bucket
        self._key = key
        self._size_bytes = size_bytes
        self._position = 0
        self._body: Any = None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size_bytes}[whence]
        position = base + offset
        if position < 0:
            raise ValueError(f"cannot seek to {position}")
        if position != self._position:
            self._end_request()
            self._position = position
        return position

    def readinto(self, buffer: Any) -> int:
        """Fill `buffer` as far as there are bytes and return how many; a broken line is mended."""
        target = memoryview(buffer).cast("B")
        size = max(0, min(len(target), self._size_bytes - self._position))
        filled = failures = 0
        while filled < size:
            with s3_bucket.translate_errors(f"read {self._key}"):
                try:
                    chunk = self._read_some(size - filled)
                except _BROKEN_OFF:
                    self._end_request()
                    failures += 1
                    if failures == READ_ATTEMPTS:
                        raise
                    continue
            target[filled : filled + len(chunk)] = chunk
            filled += len(chunk)
            self._position += len(chunk)
        return filled

    def close(self) -> None:
        self._end_request()
        super().close()

    def _read_some(self, most_bytes: int) -> bytes:
        if self._body is None:
            answer = self._bucket.short_client.get_object(
                **self._bucket.at(self._key), Range=f"bytes={self._position}-{self._size_bytes - 1}"
            )
            self._body = answer["Body"]
        chunk: bytes = self._body.read(most_bytes)
        if not chunk:
            raise ConnectionError(f"the answer ended at byte {self._position}")
        return chunk

    def _end_request(self) -> None:
        if self._body is not None:
            with suppress(*_BROKEN_OFF):
                self._body.close()
            self._body = None


def fetch_and_hash(bucket: s3_bucket.S3Bucket, key: str, file: BinaryIO) -> str:
    """Copy an object into an open, unbuffered file; return its SHA-256."""
    digest, size_bytes = hashlib.sha256(), bucket.size_of(key)
    if size_bytes is None:
        raise StorageFailedError(f"cannot read {key}: the bucket has no such object")

    def fetch(first: int) -> bytes:
        with ObjectReader(bucket, key, min(first + RANGE_BYTES, size_bytes)) as reader:
            reader.seek(first)
            return reader.read(RANGE_BYTES)

    file.seek(0)
    firsts = iter(range(0, size_bytes, RANGE_BYTES))
    with ThreadPoolExecutor(RANGES_AT_ONCE) as threads:
        arriving = deque(threads.submit(fetch, first) for first in islice(firsts, RANGES_AT_ONCE))
        while arriving:
            piece = arriving.popleft().result()
            arriving.extend(threads.submit(fetch, first) for first in islice(firsts, 1))
            write_all(file, piece)
            digest.update(piece)
    return digest.hexdigest()


class S3PartWriter(contract.PartWriter):
    """Keeps a part on the disk until it is whole, and sends it then."""

    def __init__(
        self,
        bucket: s3_bucket.S3Bucket,
        key: str,
        upload: "S3Upload",
        number: int,
        size_bytes: int,
        *,
        scratch: ScratchFolder,
    ) -> None:
        super().__init__(number, size_bytes)
        self._bucket = bucket
        self._key = key
        self._upload = upload
        self._arriving = (
            hashlib.md5(usedforsecurity=False) if upload.checksum == "md5" else self._hash
        )
        self._opened = ExitStack()
        self._file = self._opened.enter_context(scratch.file(size_bytes))[1]

    def write(self, chunk: bytes) -> None:
        file = self._take(chunk)
        if self._arriving is not self._hash:
            self._arriving.update(chunk)
        try:
            write_all(file, chunk)
        except OSError as error:
            raise contract.disk_refusal("write a part", error) from error

    def finish(self, digest: str | None = None) -> None:
        file = self._require_whole(digest)
        file.seek(0)
        checksum = s3_bucket.encode_checksum(self._arriving.hexdigest())
        try:
            self._bucket.put_part(
                self._key,
                self._upload.multipart_id,
                self.number,
                file,
                ContentLength=self.size_bytes,
                **{s3_bucket.CHECKSUM_FIELDS[self._upload.checksum]: checksum},
            )
        except s3_bucket.MultipartGoneError as error:
            raise contract.upload_given_up() from error
        self.discard()

    def discard(self) -> None:
        self._file = None
        self._opened.close()


@dataclass(frozen=True)
class S3Upload:
    """An upload as its handle describes it, with the S3 server's word for it.

    `checksum` is the kind that each part is checked by on arrival.
    """

    upload_id: str
    size_bytes: int
    part_bytes: int
    multipart_id: str
    checksum: contract.Checksum

    def handle(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def of(cls, handle: str) -> "S3Upload":
        """Read a handle."""
        try:
            return cls(**json.loads(handle))
        except (ValueError, TypeError) as error:
            raise StorageFailedError(f"{handle!r} is no upload in a bucket") from error


@dataclass(frozen=True)
class S3Places:
    """The keys of a pool's objects; malformed names never become one.

    All begin with `prefix`: nothing, or something with a slash at the end.
    """

    prefix: str

    @classmethod
    def below(cls, prefix: str) -> "S3Places":
        return cls(f"{prefix.rstrip('/')}/" if prefix else "")

    def mark(self, upload_id: str) -> str:
        return f"{self.marks}{contract.require_match(contract.UPLOAD_ID, upload_id)}"

    def verified(self, upload_id: str) -> str:
        return f"{self.prefix}verified/{contract.require_match(contract.UPLOAD_ID, upload_id)}"

    def blob(self, upload_id: str) -> str:
        folder = contract.require_match(contract.UPLOAD_ID, upload_id)[:2]
        return f"{self.blobs}{folder}/{upload_id}"

    def published(self, digest: str) -> str:
        return f"{self.all_published}{contract.require_match(contract.DIGEST, digest)[:2]}/{digest}"

    @property
    def marks(self) -> str:
        return f"{self.prefix}uploads/"

    @property
    def blobs(self) -> str:
        return f"{self.prefix}blobs/"

    @property
    def all_published(self) -> str:
        return f"{self.prefix}published/"

    @property
    def probe(self) -> str:
        return f"{self.prefix}probe"
