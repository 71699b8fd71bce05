"""Where things lie in a bucket, and what the server keeps to find them again."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass

from pool_server.errors import StorageFailedError
from pool_server.storage.contract import Checksum

_UPLOAD_ID = re.compile(r"^[0-9a-f]{32}$")
_DIGEST = re.compile(r"^[0-9a-f]{64}$")


@dataclass(frozen=True)
class S3Upload:
    """An upload as its handle describes it.

    Attributes
    ----------
    multipart_id : str
        The S3 server's word for it.
    checksum : Checksum or None
        What each part is checked by on arrival.
    """

    upload_id: str
    size_bytes: int
    part_bytes: int
    multipart_id: str
    checksum: Checksum | None

    def handle(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def of(cls, handle: str) -> S3Upload:
        """Read a handle.

        Raises
        ------
        StorageFailedError
            It is none of this storage: the pool kept its files elsewhere when it was made.
        """
        try:
            return cls(**json.loads(handle))
        except (ValueError, TypeError) as error:
            raise StorageFailedError(f"{handle!r} is no upload in a bucket") from error

    def planned_parts(self) -> dict[int, int]:
        """Return the sizes of all parts by number."""
        starts = range(0, self.size_bytes, self.part_bytes)
        return {
            number: min(self.part_bytes, self.size_bytes - start)
            for number, start in enumerate(starts, start=1)
        }


@dataclass(frozen=True)
class S3Places:
    """The keys of a pool's objects; what does not look as it should never becomes one.

    Attributes
    ----------
    prefix : str
        What all of them begin with: nothing, or something with a slash at the end.
    """

    prefix: str

    @classmethod
    def below(cls, prefix: str) -> S3Places:
        return cls(f"{prefix.rstrip('/')}/" if prefix else "")

    def mark(self, upload_id: str) -> str:
        return f"{self.marks}{_required(_UPLOAD_ID, upload_id)}"

    def verified(self, upload_id: str) -> str:
        return f"{self.prefix}verified/{_required(_UPLOAD_ID, upload_id)}"

    def blob(self, upload_id: str) -> str:
        return f"{self.blobs}{_required(_UPLOAD_ID, upload_id)[:2]}/{upload_id}"

    def published(self, digest: str) -> str:
        return f"{self.all_published}{_required(_DIGEST, digest)[:2]}/{digest}"

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


def _required(pattern: re.Pattern[str], word: str) -> str:
    # They come from the database or the bucket; a wrong one must still never be a key.
    if not pattern.fullmatch(word):
        raise StorageFailedError(f"{word!r} is no identifier or digest of the pool")
    return word
