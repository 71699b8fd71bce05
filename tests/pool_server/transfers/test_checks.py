"""What the check of an uploaded file refuses, and how it says so."""

from __future__ import annotations

import io
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

from pool_server.errors import FormatRefusedError
from pool_server.settings import PoolSettings
from pool_server.transfers.checking import run_check
from tests.pool_server.model_files import network_bytes
from tests.pool_server.pool_driver import PoolDriver, announce, complete, send_parts


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
def test_what_is_no_model_is_refused(pool: PoolDriver, name: str) -> None:
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


def test_a_check_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    (tmp_path / "model").write_bytes(network_bytes(5_000_000))
    settings = PoolSettings(data_folder=tmp_path, check_time_s=0.001)
    with pytest.raises(FormatRefusedError, match=r"slow\.dat: .* longer than the 0\.001 s"):
        run_check(tmp_path / "model", "slow.dat", 10, settings)
