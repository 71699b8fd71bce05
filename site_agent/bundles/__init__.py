"""The bundle format: an uncompressed tar with exactly one encoding of the same models.

==========================  =====================================================================
member                      content
==========================  =====================================================================
``manifest.json``           first: schema, and path, size and SHA-256 of every other member
``records/00001.json`` ...  the record of one version each (`PortableVersion`), parents first
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

import hashlib
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, BinaryIO, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from aggregators.errors import first_problem
from pool_server.wire.bundles import MOST_VERSIONS, PortableVersion
from pool_server.wire.names import Digest
from pool_server.wire.signatures.statements import canonical_json
from site_agent.errors import BundleRefusedError
from site_agent.work import Progress
from site_agent.work.files import chunks

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
    """The content of a bundle, as its manifest lists it."""

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


_RECORD_PATH = re.compile(r"^records/[0-9]{5}\.json$")
_BLOB_PATH = re.compile(r"^blobs/([0-9a-f]{64})$")


@dataclass(frozen=True)
class Span:
    """A member and the place of its bytes in the file."""

    member: Member
    offset: int


@dataclass(frozen=True)
class Bundle:
    """A file with a valid structure; its content is checked by `verify_content`."""

    path: Path
    identifier: str
    records: tuple[Span, ...]
    blobs: dict[str, Span]

    @property
    def content_bytes(self) -> int:
        """Bytes of all members."""
        spans = [*self.records, *self.blobs.values()]
        return sum(span.member.size_bytes for span in spans)

    def read_record(self, span: Span) -> PortableVersion:
        """Return one record, verified once more: the file may have been changed meanwhile."""
        with self.path.open("rb") as file:
            content = b"".join(chunks(file, span.offset, span.member.size_bytes))
        if hashlib.sha256(content).hexdigest() != span.member.sha256:
            raise _damaged(self.path, span)
        try:
            record = PortableVersion.model_validate_json(content)
        except ValidationError as error:
            raise BundleRefusedError(
                f"{self.path}: {span.member.path}: {first_problem(error)}"
            ) from error
        if record_bytes(record) != content:
            raise BundleRefusedError(
                f"{self.path}: {span.member.path} is not written as records are: it has fields "
                "that this version of poolctl does not know, or another order",
                hint="it may come from a newer poolctl",
            )
        return record

    def verify_content(self, progress: Progress) -> None:
        """Hash all members."""
        total, checked = self.content_bytes, 0
        with self.path.open("rb") as file:
            for span in [*self.records, *self.blobs.values()]:
                hasher = hashlib.sha256()
                for chunk in chunks(file, span.offset, span.member.size_bytes):
                    hasher.update(chunk)
                    checked += len(chunk)
                    progress(checked / total, f"checking {span.member.path[:30]}")
                if hasher.hexdigest() != span.member.sha256:
                    raise _damaged(self.path, span)


def is_bundle(path: Path) -> bool:
    """Tell whether a file begins as bundles do; nothing else of it is checked."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        header = file.read(BLOCK_BYTES)
    name = member_header(MANIFEST, 0)[:100]
    return len(header) == BLOCK_BYTES and header[:100] == name


def open_bundle(path: Path) -> Bundle:
    """Read the manifest of a bundle and compare the whole structure of the file with it."""
    with path.open("rb") as file:
        file_bytes = os.fstat(file.fileno()).st_size
        manifest, content = _read_manifest(path, file)
        _require_members(path, manifest)
        position = BLOCK_BYTES + len(content) + len(padding(len(content)))
        spans = []
        for member in manifest.members:
            spans.append(Span(member, position + BLOCK_BYTES))
            position += BLOCK_BYTES + member.size_bytes + len(padding(member.size_bytes))
        expected_bytes = position + len(END)
        if file_bytes != expected_bytes:
            what = "is cut off" if file_bytes < expected_bytes else "goes on behind its end"
            raise BundleRefusedError(
                f"{path}: {what}: {file_bytes:,} bytes, expected {expected_bytes:,}"
            )
        _require_structure(path, file, spans, len(content))
    records = tuple(span for span in spans if _RECORD_PATH.fullmatch(span.member.path))
    blobs = {span.member.sha256: span for span in spans if _BLOB_PATH.fullmatch(span.member.path)}
    return Bundle(path, hashlib.sha256(content).hexdigest(), records, blobs)


def _read_manifest(path: Path, file: BinaryIO) -> tuple[Manifest, bytes]:
    header = file.read(BLOCK_BYTES)
    try:
        size_bytes = int(header[124:135], 8)
    except ValueError:
        size_bytes = -1
    if not 0 < size_bytes <= MOST_MANIFEST_BYTES or header != member_header(MANIFEST, size_bytes):
        raise BundleRefusedError(
            f"{path}: is not a bundle of poolctl", hint="poolctl bundle export makes them"
        )
    content = file.read(size_bytes)
    try:
        manifest = Manifest.model_validate_json(content)
    except ValidationError as error:
        raise BundleRefusedError(f"{path}: {MANIFEST}: {first_problem(error)}") from error
    except json.JSONDecodeError as error:
        raise BundleRefusedError(f"{path}: {MANIFEST}: {error}") from error
    # One spelling only: two files with the same members must have the same identifier.
    if manifest.to_bytes() != content:
        raise BundleRefusedError(f"{path}: {MANIFEST} is cut off, or not written as manifests are")
    return manifest, content


def _require_members(path: Path, manifest: Manifest) -> None:
    """Raise unless the members are records, counted from 1, and then blobs by digest."""
    records = [member for member in manifest.members if member.path.startswith("records/")]
    blobs = manifest.members[len(records) :]
    for number, member in enumerate(manifest.members, start=1):
        if number <= len(records):
            is_right = member.path == f"records/{number:05}.json"
            is_right = is_right and member.size_bytes <= MOST_RECORD_BYTES
        else:
            is_right = member.path == f"blobs/{member.sha256}"
        if not is_right:
            raise BundleRefusedError(
                f"{path}: member {number} is {member.path!r} of {member.size_bytes:,} bytes, which "
                "has no place there in a bundle"
            )
    digests = [blob.sha256 for blob in blobs]
    if digests != sorted(set(digests)) or not records or not blobs:
        raise BundleRefusedError(f"{path}: its files are missing, repeated or not in order")


def _require_structure(path: Path, file: BinaryIO, spans: list[Span], manifest_bytes: int) -> None:
    """Raise unless every header and every byte between members is as it must be."""
    # Tar programs differ in what they make of odd headers and padding, so none are accepted.
    places = [(BLOCK_BYTES, manifest_bytes), *((s.offset, s.member.size_bytes) for s in spans)]
    for index, (offset, size_bytes) in enumerate(places):
        end = offset + size_bytes
        expected = padding(size_bytes)
        if index < len(spans):
            member = spans[index].member
            expected += member_header(member.path, member.size_bytes)
        else:
            expected += END
        file.seek(end)
        if file.read(len(expected)) != expected:
            raise BundleRefusedError(
                f"{path}: the content at byte {end:,} does not follow from the manifest"
            )


def _damaged(path: Path, span: Span) -> BundleRefusedError:
    return BundleRefusedError(
        f"{path}: {span.member.path} does not have the digest {span.member.sha256[:16]}... that "
        "the manifest gives: the file was damaged or changed",
        hint="copy it again from where it was made",
    )
