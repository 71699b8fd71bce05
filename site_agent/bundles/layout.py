"""The file that models travel in: an uncompressed tar that can be written in one way only.

==========================  =====================================================================
member                      content
==========================  =====================================================================
``manifest.json``           first: schema, and path, size and SHA-256 of every other member
``records/00001.json`` ...  what is known of one version each (`PortableVersion`), parents first
``blobs/<sha256>``          model files, by digest
==========================  =====================================================================

The end is two blocks of zeros. Headers hold nothing but name and size (mode 0644, owner 0, time
0), JSON is canonical, and the order is fixed: the same models give the same bytes, and the SHA-256
of the manifest names the whole. Any tar program lists and unpacks it.

Reading trusts nothing. The manifest is read first, limited in size and count; from it follows
every byte of structure, and a file that differs in any of them is refused. Nothing is
decompressed, no path of the file is ever opened, and memory holds one record at a time.

Source of the headers: POSIX ustar (IEEE Std 1003.1), with GNU's base-256 sizes from 8 GiB on.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from pool_server.wire.models.bundles import MOST_VERSIONS, PortableVersion
from pool_server.wire.names import Digest
from pool_server.wire.signatures.statements import canonical_json

Schema = Literal["poolctl-bundle/1"]
SCHEMA: Schema = "poolctl-bundle/1"
BLOCK_BYTES = 512
MANIFEST = "manifest.json"
MOST_MANIFEST_BYTES = 8 * 1024 * 1024
MOST_RECORD_BYTES = 8 * 1024 * 1024
END = bytes(2 * BLOCK_BYTES)
_LARGEST_OCTAL = 8**11 - 1


class Member(BaseModel):
    """One member of a bundle, after the manifest."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: Annotated[str, StringConstraints(max_length=100)]
    size_bytes: int = Field(ge=1, le=2**50)
    sha256: Digest


class Manifest(BaseModel):
    """What a bundle holds."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    schema_name: Schema = Field(alias="schema")
    members: tuple[Member, ...] = Field(min_length=2, max_length=2 * MOST_VERSIONS)

    def to_bytes(self) -> bytes:
        return canonical_json(self.model_dump(mode="json", by_alias=True)) + b"\n"


def record_bytes(record: PortableVersion) -> bytes:
    """Return a record as it is written."""
    return canonical_json(record.model_dump(mode="json")) + b"\n"


def member_header(path: str, size_bytes: int) -> bytes:
    """Return the one header that a member may have."""
    size = b"%011o\0" % size_bytes
    if size_bytes > _LARGEST_OCTAL:
        size = b"\x80" + size_bytes.to_bytes(11, "big")
    fields = [
        path.encode("ascii").ljust(100, b"\0"),
        b"0000644\0",  # mode
        b"0000000\0",  # owner
        b"0000000\0",  # group
        size,
        b"00000000000\0",  # time
        b"        ",  # in place of the checksum
        b"0",  # a regular file
        bytes(100),  # no link
        b"ustar\x0000",
    ]
    header = b"".join(fields).ljust(BLOCK_BYTES, b"\0")
    checksum = b"%06o\0 " % sum(header)
    return header[:148] + checksum + header[156:]


def padding(size_bytes: int) -> bytes:
    """Return the zeros that fill a member's last block."""
    return bytes(-size_bytes % BLOCK_BYTES)
