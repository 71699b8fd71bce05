"""Model files in a bucket of an S3 server, to and from which clients send the bytes themselves.

::

    PREFIX/uploads/0123...        an upload that has begun: a mark without content
    PREFIX/blobs/01/0123...       the file of that upload, all parts joined
    PREFIX/verified/0123...       the SHA-256 of that file, from when it was verified
    PREFIX/published/ab/ab12...   by digest: which upload's file is the published one

Every upload has a key of its own, chosen by the server and written once, by joining the parts of
a multipart upload. The address that a client gets is good for one part of it, and for nothing
once they are joined; Swift takes parts even then, but only the same bytes again, because an
address is bound to the part's checksum. So a verified object never changes, and
publishing copies nothing: a small object under the digest names the verified one. Should two
servers publish one digest at the same moment either may win, for both files were verified.
Nothing rests on the S3 server refusing the second, which not all do.

The mark goes when an upload is discarded; leftovers of killed processes are found by it. No object
is ever given another content but the one that names the published file, and that only where its
file is lost: an S3 server may take its time until all see a change.
"""

import hashlib
import json
import re
import secrets
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import BinaryIO, cast
from urllib.parse import quote

from pool_server.errors import PartMismatchError, StorageFailedError
from pool_server.settings import MIB, PoolSettings
from pool_server.storage import contract, s3_bucket, s3_objects
from pool_server.storage.scratch import ScratchFolder

_CHECKSUM = {"md5": re.compile("^[0-9a-f]{32}$"), "sha256": re.compile("^[0-9a-f]{64}$")}
MOST_POINTER_BYTES = 4096
ADDRESS_LIFETIME = timedelta(minutes=15)
"""How long a client may use an address."""


@dataclass(frozen=True)
class PublishedFile:
    """The upload that holds the published file of a digest."""

    upload_id: str
    size_bytes: int
    part_bytes: int


class S3Storage:
    """Keeps model files in a bucket; see the module and the contract."""

    def __init__(self, settings: PoolSettings) -> None:
        self.bucket = s3_bucket.S3Bucket(settings)
        self.places = s3_objects.S3Places.below(settings.s3_prefix)
        self.scratch = ScratchFolder(settings.scratch_folder)
        self._lifetime = ADDRESS_LIFETIME
        self._part_bytes = settings.part_bytes
        self._can_write = False
        self._checksum: contract.Checksum | None = None

    @property
    def takes_parts(self) -> bool:
        return True

    # -- parts -----------------------------------------------------------------------------

    def begin(self, upload_id: str, *, size_bytes: int, part_bytes: int) -> str:
        # The mark comes first, so that a sweep finds all that a killed process leaves.
        self.bucket.write(self.places.mark(upload_id), b"")
        checksum = self._find_checksum()
        multipart_id = self.bucket.begin_multipart(self.places.blob(upload_id), checksum)
        return s3_objects.S3Upload(
            upload_id, size_bytes, part_bytes, multipart_id, checksum
        ).handle()

    def _find_checksum(self) -> contract.Checksum:
        """Return the digest by which the S3 server checks parts on arrival.

        Every server knows MD5, which is slower, and for which other bytes can be made. A server
        that does not know the header of SHA-256 takes any bytes with it.
        """
        if self._checksum is None:
            verifies = self.bucket.verifies_sha256(self.places.probe)
            self._checksum = "sha256" if verifies else "md5"
        return self._checksum

    def part_checksum(self, handle: str) -> contract.Checksum | None:
        return s3_objects.S3Upload.of(handle).checksum

    def part_address(
        self, handle: str, number: int, size_bytes: int, checksum: str | None = None
    ) -> contract.PartAddress:
        upload = s3_objects.S3Upload.of(handle)
        if checksum is None or not _CHECKSUM[upload.checksum].fullmatch(checksum):
            raise PartMismatchError(
                f"part {number} is announced with the checksum {checksum!r}, expected "
                f"its {upload.checksum} in hexadecimal",
                hint="The upload's `part_checksum` says which one is wanted.",
            )
        encoded = s3_bucket.encode_checksum(checksum)
        expires_at = datetime.now(UTC) + self._lifetime
        url = self.bucket.sign_url(
            "upload_part",
            self._lifetime,
            self.places.blob(upload.upload_id),
            UploadId=upload.multipart_id,
            PartNumber=number,
            ContentLength=size_bytes,
            **{s3_bucket.CHECKSUM_FIELDS[upload.checksum]: encoded},
        )
        headers = {
            "Content-Length": str(size_bytes),
            s3_bucket.CHECKSUM_HEADERS[upload.checksum]: encoded,
        }
        return contract.PartAddress(url, headers, expires_at)

    def open_part(self, handle: str, number: int, size_bytes: int) -> s3_objects.S3PartWriter:
        upload = s3_objects.S3Upload.of(handle)
        key = self.places.blob(upload.upload_id)
        return s3_objects.S3PartWriter(
            self.bucket, key, upload, number, size_bytes, scratch=self.scratch
        )

    def received_parts(self, handle: str) -> Mapping[int, int]:
        upload = s3_objects.S3Upload.of(handle)
        try:
            parts = self.bucket.parts(self.places.blob(upload.upload_id), upload.multipart_id)
        except s3_bucket.MultipartGoneError:
            # Joined by a process that was killed before it came further, or given up.
            self._require_joined(upload)
            plan = contract.PartPlan(upload.size_bytes, upload.part_bytes)
            return {number: plan.size_of(number) for number in range(1, plan.count + 1)}
        return {part.number: part.size_bytes for part in parts}

    # -- from parts to a published file -----------------------------------------------------

    @contextmanager
    def assembled(self, handle: str, part_count: int, digest: str) -> Iterator[Path]:
        upload = s3_objects.S3Upload.of(handle)
        key = self.places.blob(upload.upload_id)
        self._join(upload, part_count)
        size_bytes = self.bucket.size_of(key)
        if size_bytes != upload.size_bytes and size_bytes == self.bucket.size_of(key):
            contract.require_digest(
                f"of {size_bytes} bytes", f"{digest} of {upload.size_bytes} bytes"
            )
        with self.scratch.file(upload.size_bytes) as (path, file):
            contract.require_digest(self._fetch(key, file, digest), digest)
            yield path

    def publish(self, handle: str, digest: str) -> None:
        upload = s3_objects.S3Upload.of(handle)
        known = self._find_published(digest)
        if known is not None and self._is_whole(known):
            return
        # Before the file can be found: from now on only a sweep may remove it.
        self.bucket.write(self.places.verified(upload.upload_id), digest.encode())
        pointer = asdict(PublishedFile(upload.upload_id, upload.size_bytes, upload.part_bytes))
        self.bucket.write(
            self.places.published(digest), json.dumps(pointer).encode(), if_absent=known is None
        )

    def discard(self, handle: str) -> None:
        upload = s3_objects.S3Upload.of(handle)
        self.bucket.abort(self.places.blob(upload.upload_id), upload.multipart_id)
        self._drop(upload.upload_id, settled=False)

    def store(self, source: Path, digest: str) -> None:
        if self.has_content(digest):
            return
        size_bytes = source.stat().st_size
        plan = contract.PartPlan.choose(size_bytes, self._part_bytes)
        handle = self.begin(
            secrets.token_hex(16), size_bytes=size_bytes, part_bytes=plan.part_bytes
        )
        try:
            with source.open("rb") as file:
                contract.require_digest(self._send_parts(handle, plan, file), digest)
            self._join(s3_objects.S3Upload.of(handle), plan.count)
            self.publish(handle, digest)
        finally:
            self.discard(handle)

    def _send_parts(self, handle: str, plan: contract.PartPlan, file: BinaryIO) -> str:
        """Send an open file, and return its SHA-256."""
        digest = hashlib.sha256()
        for number in range(1, plan.count + 1):
            left = plan.size_of(number)
            writer = self.open_part(handle, number, left)
            try:
                while left > 0:
                    chunk = file.read(min(MIB, left))
                    if not chunk:
                        break  # The writer refuses a part that is too short.
                    digest.update(chunk)
                    writer.write(chunk)
                    left -= len(chunk)
                writer.finish()
            finally:
                writer.discard()
        return digest.hexdigest()

    # -- published files -----------------------------------------------------------------------

    def has_content(self, digest: str) -> bool:
        known = self._find_published(digest)
        return known is not None and self._is_whole(known)

    def content_source(self, digest: str, file_name: str) -> str:
        known = self._require_published(digest)
        return self.bucket.sign_url(
            "get_object",
            self._lifetime,
            self.places.blob(known.upload_id),
            ResponseContentDisposition=f"attachment; filename*=UTF-8''{quote(file_name)}",
            ResponseContentType="application/octet-stream",
        )

    def open_content(self, digest: str) -> BinaryIO:
        known = self._require_published(digest)
        key = self.places.blob(known.upload_id)
        return cast("BinaryIO", s3_objects.ObjectReader(self.bucket, key, known.size_bytes))

    @contextmanager
    def content_file(self, digest: str) -> Iterator[Path]:
        known = self._require_published(digest)
        key = self.places.blob(known.upload_id)
        with self.scratch.file(known.size_bytes) as (path, file):
            stored_digest = self._fetch(key, file, digest)
            if stored_digest != digest:
                raise StorageFailedError(
                    f"the file published as {digest} has SHA-256 {stored_digest}",
                    code=contract.FILE_DAMAGED,
                )
            yield path

    def _fetch(self, key: str, file: BinaryIO, expected: str) -> str:
        """Copy an object into a file; return its SHA-256, a wrong one only if read twice alike.

        Bytes that changed on their way from the bucket are nobody's mistake.
        """
        seen = {expected}
        for _ in range(s3_objects.READ_ATTEMPTS):
            digest = s3_objects.fetch_and_hash(self.bucket, key, file)
            if digest in seen:
                return digest
            seen.add(digest)
        raise StorageFailedError(f"cannot read {key}: the S3 server gives other bytes each time")

    def place_of(self, digest: str) -> str | None:
        known = self._find_published(digest)
        if known is None:
            return None
        key = self.places.blob(known.upload_id)
        return f"the object {key} in the bucket {self.bucket.name}"

    def published_digests(self) -> Iterator[str]:
        for key, _ in self.bucket.keys(self.places.all_published):
            yield key.rpartition("/")[2]

    def remove_content(self, digest: str) -> None:
        known = self._find_published(digest)
        if known is not None:
            # In this order: what is published is always there.
            self.bucket.delete(self.places.published(digest))
            self.bucket.delete(self.places.blob(known.upload_id))
            self.bucket.delete(self.places.verified(known.upload_id))

    # -- looking after it all --------------------------------------------------------------------

    def sweep(self, live_handles: Collection[str], older_than: datetime) -> int:
        self.scratch.clear()
        live = set()
        for handle in live_handles:
            # Uploads that began while the pool kept its files elsewhere have nothing here.
            with suppress(StorageFailedError):
                live.add(s3_objects.S3Upload.of(handle).upload_id)
        for key, multipart_id, begun in list(self.bucket.multiparts(self.places.blobs)):
            if key.rpartition("/")[2] not in live and begun < older_than:
                self.bucket.abort(key, multipart_id)
        swept = 0
        for mark, written in list(self.bucket.keys(self.places.marks)):
            upload_id = mark.removeprefix(self.places.marks)
            if upload_id not in live and written < older_than:
                self._drop(upload_id, settled=True)
                swept += 1
        return swept

    def recover(self) -> None:
        self.scratch.clear()

    def check(self) -> None:
        if not self._can_write:
            # Once: a bucket that keeps old versions would keep each of them.
            self.bucket.require_answer()
            self.bucket.write(self.places.probe, b"")
            self.bucket.delete(self.places.probe)
            self._can_write = True
        self.bucket.require_answer()

    def _join(self, upload: s3_objects.S3Upload, part_count: int) -> None:
        key = self.places.blob(upload.upload_id)
        try:
            parts = self.bucket.parts(key, upload.multipart_id)
            contract.require_all_parts([part.number for part in parts], part_count)
            self.bucket.join(key, upload.multipart_id, parts)
        except s3_bucket.MultipartGoneError:
            self._require_joined(upload)

    def _require_joined(self, upload: s3_objects.S3Upload) -> None:
        if self.bucket.size_of(self.places.blob(upload.upload_id)) is None:
            raise contract.upload_given_up()

    def _drop(self, upload_id: str, *, settled: bool) -> None:
        """Delete the file of an upload unless it is the published one, and its records.

        Another may be published only because an answer of the S3 server is old. Then a later
        sweep decides, for which such things are `settled`.
        """
        blob, verified = self.places.blob(upload_id), self.places.verified(upload_id)
        digest = self.bucket.read(verified, MOST_POINTER_BYTES)
        known = None if digest is None else self._find_published(digest.decode("ascii", "replace"))
        if known is None or known.upload_id != upload_id:
            may_be_needed = known is not None and not self._is_whole(known)
            if digest is not None and (not settled or may_be_needed):
                return
            self.bucket.delete(blob)
            self.bucket.delete(verified)
        self.bucket.delete(self.places.mark(upload_id))

    def _find_published(self, digest: str) -> PublishedFile | None:
        problem: Exception | None = None
        for _ in range(2):
            content = self.bucket.read(self.places.published(digest), MOST_POINTER_BYTES)
            if content is None:
                return None
            try:
                return PublishedFile(**json.loads(content))
            except (ValueError, TypeError) as error:
                problem = error
        raise StorageFailedError(
            f"{self.places.published(digest)} was written by another program"
        ) from problem

    def _require_published(self, digest: str) -> PublishedFile:
        for _ in range(2):  # One damaged answer is no lost file.
            known = self._find_published(digest)
            if known is not None and self._is_whole(known):
                return known
        raise contract.content_missing(digest)

    def _is_whole(self, known: PublishedFile) -> bool:
        return self.bucket.size_of(self.places.blob(known.upload_id)) == known.size_bytes
