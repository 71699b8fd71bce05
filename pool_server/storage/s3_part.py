"""Parts that the server itself puts into a bucket, of files that it made."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import BinaryIO

from pool_server.errors import PartMismatchError, StorageFailedError
from pool_server.storage.s3_bucket import CHECKSUM_FIELDS, MultipartGoneError, S3Bucket, encoded
from pool_server.storage.s3_places import S3Upload
from pool_server.storage.scratch import ScratchFolder, write_all
from pool_server.storage.verification import PartCheck, disk_refusal, upload_given_up


class S3PartWriter:
    """Keeps a part on the disk until it is whole, and sends it then."""

    def __init__(
        self,
        bucket: S3Bucket,
        key: str,
        upload: S3Upload,
        check: PartCheck,
        scratch: ScratchFolder,
    ) -> None:
        self._bucket = bucket
        self._key = key
        self._upload = upload
        self._check = check
        self._md5 = hashlib.md5(usedforsecurity=False)
        self._opened = ExitStack()
        self._file: BinaryIO | None = self._opened.enter_context(scratch.file(check.size_bytes))[1]

    def write(self, chunk: bytes) -> None:
        file = self._open_file()
        with self._discarded_when_refused():
            self._check.take(chunk)
        self._md5.update(chunk)
        try:
            write_all(file, chunk)
        except OSError as error:
            raise disk_refusal("write a part", error) from error

    def finish(self, digest: str | None = None) -> None:
        file = self._open_file()
        with self._discarded_when_refused():
            self._check.require_whole(digest)
        file.seek(0)
        arguments = {}
        if self._upload.checksum is not None:
            checksums = {"md5": self._md5.hexdigest(), "sha256": self._check.digest}
            arguments[CHECKSUM_FIELDS[self._upload.checksum]] = encoded(
                checksums[self._upload.checksum]
            )
        try:
            self._bucket.put_part(
                self._key,
                self._upload.multipart_id,
                self._check.number,
                file,
                ContentLength=self._check.size_bytes,
                **arguments,
            )
        except MultipartGoneError as error:
            raise upload_given_up() from error
        self.discard()

    def discard(self) -> None:
        self._file = None
        self._opened.close()

    def _open_file(self) -> BinaryIO:
        if self._file is None:
            raise StorageFailedError("the part is closed already")
        return self._file

    @contextmanager
    def _discarded_when_refused(self) -> Iterator[None]:
        try:
            yield
        except PartMismatchError:
            self.discard()
            raise
