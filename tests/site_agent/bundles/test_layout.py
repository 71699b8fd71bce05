"""The file that models travel in: one form only, and nothing in it is trusted."""

import hashlib
import json
import os
import tarfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from site_agent.bundles import BLOCK_BYTES, member_header, open_bundle, padding
from site_agent.bundles.exporting import Blob, BundleWriter
from site_agent.bundles.importing import inspect_bundle
from site_agent.errors import BundleRefusedError
from tests.pool_server.model_files import network_bytes
from tests.site_agent.bundles.made_bundles import (
    KEY,
    good_bundle,
    ignore,
    record_of,
    signed,
    write_bundle,
)


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    path = tmp_path / "good.bundle"
    good_bundle(path)
    return path


def test_equal_models_give_equal_bytes_that_any_tar_program_reads(tmp_path: Path) -> None:
    first, second = tmp_path / "1.bundle", tmp_path / "elsewhere" / "2.bundle"
    second.parent.mkdir()
    identifiers = {good_bundle(first), good_bundle(second)}
    assert first.read_bytes() == second.read_bytes()
    assert len(identifiers) == 1
    # Whatever machine and version made it: these bytes are promised to stay as they are.
    assert hashlib.sha256(first.read_bytes()).hexdigest() == (
        "18544ec9930d18a5dfd94b8bed92095514d070398dacbc9836391b7552b93a72"
    )
    with tarfile.open(first) as file:
        names = file.getnames()
        assert names[:3] == ["manifest.json", "records/00001.json", "records/00002.json"]
        assert all(member.isreg() and member.mtime == 0 for member in file.getmembers())
        for name in names[3:]:
            content = file.extractfile(name)
            assert content is not None
            assert name == f"blobs/{hashlib.sha256(content.read()).hexdigest()}"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1.bundle", "elsewhere"]


def test_everything_comes_back(bundle: Path) -> None:
    opened = open_bundle(bundle)
    assert opened.identifier == hashlib.sha256(manifest_of(bundle)).hexdigest()
    opened.verify_content(ignore)
    records = [opened.read_record(span) for span in opened.records]
    contents = [network_bytes(seed=number) for number in range(2)]
    assert records == [
        signed(record_of(content, f"face-{number}")) for number, content in enumerate(contents)
    ]
    report = inspect_bundle(bundle)
    assert [(record.address, record.key_id, record.trust) for record in report.versions] == [
        ("pool://site-a/face-0@1", KEY.public.key_id, "unknown"),
        ("pool://site-a/face-1@1", KEY.public.key_id, "unknown"),
    ]


# -- broken and hostile files -----------------------------------------------------------------


def manifest_of(path: Path) -> bytes:
    content = path.read_bytes()
    return content[BLOCK_BYTES : BLOCK_BYTES + int(content[124:135], 8)]


def with_manifest(path: Path, change: Callable[[dict[str, list[dict[str, object]]]], None]) -> None:
    """Change the manifest, and put the file together again so that its structure is right."""
    content = path.read_bytes()
    old = manifest_of(path)
    document = json.loads(old)
    change(document)
    new = (
        json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
        + b"\n"
    )
    head = member_header("manifest.json", len(new)) + new + padding(len(new))
    path.write_bytes(head + content[BLOCK_BYTES + len(old) + len(padding(len(old))) :])


def test_every_byte_counts(bundle: Path) -> None:
    """A single changed byte anywhere is detected."""
    content = bundle.read_bytes()
    for position in range(0, len(content), 97):
        changed = bytearray(content)
        changed[position] ^= 0x20
        bundle.write_bytes(changed)
        with pytest.raises(BundleRefusedError):
            inspect_bundle(bundle)


def test_a_file_of_another_length_is_refused(bundle: Path) -> None:
    content = bundle.read_bytes()
    for length in (0, 1, 511, 512, 513, 2000, len(content) - 1):
        bundle.write_bytes(content[:length])
        with pytest.raises(BundleRefusedError):
            open_bundle(bundle)
    bundle.write_bytes(content + bytes(512))
    with pytest.raises(BundleRefusedError, match="behind its end"):
        open_bundle(bundle)


@pytest.mark.parametrize(
    "path",
    [
        "../../etc/passwd", "/etc/passwd", "blobs/../../x", "records/00003.json", "",
    ],
)  # fmt: skip
def test_no_path_leads_anywhere(bundle: Path, path: str) -> None:
    for index in (0, 1, 2, 3):

        def rename(document: dict[str, list[dict[str, object]]], index: int = index) -> None:
            document["members"][index]["path"] = path

        original = bundle.read_bytes()
        with_manifest(bundle, rename)
        with pytest.raises(BundleRefusedError):
            open_bundle(bundle)
        bundle.write_bytes(original)


def test_too_many_members_are_refused_before_anything_is_read(bundle: Path) -> None:
    def multiply(document: dict[str, list[dict[str, object]]]) -> None:
        document["members"] = document["members"] * 6000

    with_manifest(bundle, multiply)
    tracemalloc.start()
    with pytest.raises(BundleRefusedError, match="members"):
        open_bundle(bundle)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 64 * 1024 * 1024


def test_a_manifest_that_promises_too_much_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "huge.bundle"
    with path.open("wb") as file:
        file.write(member_header("manifest.json", 2**40))
        file.truncate(2**40)  # sparse: takes no room
    with pytest.raises(BundleRefusedError, match="not a bundle"):
        open_bundle(path)


@pytest.mark.parametrize(
    "content",
    [b"", b"Dear colleague", b"PK\x03\x04" + bytes(600), b"\x1f\x8b" + bytes(600), bytes(2048)],
)
def test_what_is_no_bundle_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x"
    path.write_bytes(content)
    with pytest.raises(BundleRefusedError, match="not a bundle"):
        open_bundle(path)


def test_links_devices_and_other_kinds_of_members_are_refused(bundle: Path) -> None:
    """Header fields of a member other than name and size have one permitted value."""
    content = bundle.read_bytes()
    first_record = BLOCK_BYTES + len(manifest_of(bundle)) + len(padding(len(manifest_of(bundle))))
    for kind in b"1", b"2", b"3", b"5", b"L", b"x", b"S":
        header = bytearray(content[first_record : first_record + BLOCK_BYTES])
        header[156:157] = kind
        header[148:156] = b"        "
        header[148:156] = b"%06o\0 " % sum(header)
        bundle.write_bytes(
            content[:first_record] + bytes(header) + content[first_record + BLOCK_BYTES :]
        )
        with pytest.raises(BundleRefusedError, match="does not follow from the manifest"):
            open_bundle(bundle)


def test_nothing_is_left_when_writing_fails(tmp_path: Path) -> None:
    content = network_bytes(seed=5)
    blob = tmp_path / "blob"
    blob.write_bytes(network_bytes(seed=6))
    target = tmp_path / "out" / "x.bundle"
    target.parent.mkdir()
    writer = BundleWriter(target)
    with writer.collecting() as add:
        add(record_of(content))
        with pytest.raises(BundleRefusedError, match="nothing was written"):
            writer.write([Blob(blob, record_of(content).digest, len(content))], ignore)
    assert list(target.parent.iterdir()) == []


def test_memory_stays_small_whatever_the_size(tmp_path: Path) -> None:
    content = os.urandom(1 << 20) * 48
    path = tmp_path / "large.bundle"
    tracemalloc.start()
    blob = tmp_path / "blob"
    blob.write_bytes(content)
    record = record_of(content)
    size_bytes = len(content)
    del content
    tracemalloc.reset_peak()
    writer = BundleWriter(path)
    with writer.collecting() as add:
        add(record)
        writer.write([Blob(blob, record.digest, size_bytes)], ignore)
    inspect_bundle(path)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 8 * 1024 * 1024


# -- files that contradict themselves ---------------------------------------------------------


def test_a_signature_that_does_not_hold_is_refused(tmp_path: Path) -> None:
    content = network_bytes(seed=9)
    path = tmp_path / "x.bundle"
    good = signed(record_of(content))
    assert good.statement is not None
    foreign = good.statement.model_copy(update={"public_key": "A" * 43 + "="})
    unknown = good.statement.model_copy(update={"origin": None})
    cases = {
        "does not hold": good.model_copy(update={"statement": foreign}),
        "the site and pool": good.model_copy(update={"statement": unknown}),
        "labels": good.model_copy(update={"labels": {"population": "adult"}}),
        "metrics": good.model_copy(update={"metrics": {"mean_error": 0.01}}),
        "site": signed(record_of(content), site="site-b"),
        "recipe": signed(record_of(content), recipe_digest="0" * 64),
        "terms": signed(record_of(content), terms=[{"code": "DUO:0000006"}]),
    }
    for named, record in cases.items():
        write_bundle(path, [record], [content])
        with pytest.raises(BundleRefusedError, match=named):
            inspect_bundle(path)


def test_a_recipe_of_another_model_is_refused(tmp_path: Path) -> None:
    content = network_bytes(seed=10)
    path = tmp_path / "x.bundle"
    recipe = {
        "schema": "poolctl-recipe/1",
        "method": {"name": "fedavg", "version": 1},
        "options": {},
        "inputs": [{"digest": "1" * 64, "weight": 1.0, "address": None, "file_name": None}],
        "output": {"digest": record_of(content).digest, "format": "safetensors"},
    }
    good = record_of(content, recipe=recipe, parents=["1" * 64])
    write_bundle(path, [good], [content])
    [version] = inspect_bundle(path).versions
    assert (version.parents, version.parents_here) == (("1" * 64,), 0)
    cases = {
        "no recipe": good.model_copy(update={"recipe": None}),
        "recipe makes": good.model_copy(
            update={"recipe": recipe | {"output": {"digest": "3" * 64, "format": "safetensors"}}}
        ),
    }
    for named, record in cases.items():
        write_bundle(path, [record], [content])
        with pytest.raises(BundleRefusedError, match=named):
            inspect_bundle(path)
