"""Refusals by the check of an uploaded file, and their messages."""

import io
import pickle
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

from aggregators.formats import decode_model, write_model
from aggregators.models import StateDict
from aggregators.pruning import prune
from pool_server.app import open_parts
from pool_server.errors import FormatRefusedError
from pool_server.settings import PoolSettings
from pool_server.transfers import versions
from pool_server.transfers.checking import CheckedModel, run_check
from pool_server.transfers.versions import complete_version
from tests.pool_server.interleaving import ADMIN
from tests.pool_server.model_files import network_bytes
from tests.pool_server.pool_driver import PoolDriver, announce, complete, send_parts, upload


class Trap:
    """Leaves a trace when something unpickles it."""

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return (Path.touch, (Path("/tmp/poolctl-test-trap-must-not-exist"),))


def torch_archive() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("model/data.pkl", pickle.dumps(Trap()))
    return buffer.getvalue()


REFUSED = {
    "pickle": pickle.dumps(Trap()),
    "archive": torch_archive(),
    "text": b"hello, this is no model\n" * 10,
    "one byte": b"\0",
    "zeros": b"\0" * 5000,
    "truncated": network_bytes(100, seed=1)[:-1],
    "huge header": (2**62).to_bytes(8, "little") + b"{}",
    "header of nothing": (2).to_bytes(8, "little") + b"[]",
    "half a character": save({"abcdef": np.zeros(1)}).replace(b"abcdef", rb"\ud83d"),
    "half a character in metadata": save(
        {"weight": np.zeros(1)}, {"architecture": "abcdef"}
    ).replace(b"abcdef", rb"\udc00"),
    "many tensors": save({f"layer.{number}.weight": np.zeros(1) for number in range(9000)}),
}


@pytest.mark.parametrize("name", REFUSED)
def test_files_other_than_models_are_refused(pool: PoolDriver, name: str) -> None:
    client, content = pool.member("checks"), REFUSED[name]
    opened = announce(client, "checks/gaze", content, file_name="mine.dat").json()
    send_parts(client, opened, content)
    refused = complete(client, opened)
    error = refused.json()["error"]
    assert (refused.status_code, error["code"]) == (422, "format_refused")
    assert error["message"].startswith("mine.dat: ")
    assert "Traceback" not in error["message"]
    assert str(pool.settings.data_folder) not in refused.text
    assert client.get("/api/v1/models/checks/gaze").status_code == 404
    assert not Path("/tmp/poolctl-test-trap-must-not-exist").exists()
    assert not (pool.settings.storage_folder / "uploads" / opened["upload_id"]).exists()


def test_listings_are_short_and_a_version_tells_all(pool: PoolDriver) -> None:
    client = pool.member("checks-long")
    tensors = {f"layer.{number:04}.weight": np.zeros(1) for number in range(3000)}
    made = [upload(client, "checks-long/gaze", save(tensors, {"n": str(n)})) for n in range(2)]
    at = "/api/v1/models/checks-long/gaze"
    assert all(len(version["fingerprint"]["tensors"]) == 3000 for version in made)
    assert client.get(f"{at}/versions/1").json() == made[0]
    listed = client.get(at)
    assert len(listed.content) < 10_000
    assert [item["fingerprint"]["parameters"] for item in listed.json()["items"]] == [3000, 3000]
    similar = client.get("/api/v1/models", params={"mergeable_with": "checks-long/gaze@1"})
    assert [item["version"] for item in similar.json()["items"]] == [2]


def test_models_that_cannot_be_described_are_not_published(
    pool: PoolDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, content = pool.member("checks-text"), network_bytes()
    opened = announce(client, "checks-text/gaze", content).json()
    send_parts(client, opened, content)
    token = pool.admin.get("/api/v1/tokens").json()["items"][0]["token_id"]
    parts = open_parts(pool.settings)
    # Text that UTF-8 cannot encode.
    careless = CheckedModel("network", "safetensors", {"architecture": "\ud800"}, {})
    with monkeypatch.context() as patched:
        patched.setattr(versions, "run_check", lambda *_: careless)
        with pytest.raises(ValueError, match="surrogate"):
            complete_version(parts, replace(ADMIN, token_id=token), opened["upload_id"])
    parts.database.close()
    assert client.get("/api/v1/models/checks-text/gaze").status_code == 404
    assert complete(client, opened).status_code == 201, "the next attempt reads the file"


def test_a_sparse_file_is_described_as_the_network_that_it_holds(tmp_path: Path) -> None:
    network = decode_model(network_bytes(1000))
    assert isinstance(network, StateDict)
    pruned = prune(network, ["weight"], 0.9)
    settings, checked = PoolSettings(data_folder=tmp_path), []
    for name in ("safetensors", "poolctl-sparse"):
        write_model(pruned, tmp_path / name, format_name=name)
        checked.append(run_check(tmp_path / name, "gaze", 4000, settings))
    dense, sparse = checked
    changed = {"format": "poolctl-sparse"}
    assert sparse == replace(dense, **changed, fingerprint=dense.fingerprint | changed)


def test_a_check_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    (tmp_path / "model").write_bytes(network_bytes(5_000_000))
    settings = PoolSettings(data_folder=tmp_path, check_time_s=0.001)
    with pytest.raises(FormatRefusedError, match=r"slow\.dat: .* longer than the 0\.001 s"):
        run_check(tmp_path / "model", "slow.dat", 10, settings)
