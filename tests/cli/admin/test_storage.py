"""``poolctl admin backup|restore|gc|fsck`` on a pool that serves meanwhile."""

from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.pool_server.model_files import network_bytes, sha256
from tests.pool_server.pool_driver import pool_in_thread, upload

CONTENT = network_bytes(500, seed=7)


def test_a_pool_is_backed_up_restored_and_checked(poolctl: Run, tmp_path: Path) -> None:
    with pool_in_thread(tmp_path / "pool") as pool:
        upload(pool.member("ops-a"), "ops-a/gaze", CONTENT)
        data = ("--data", tmp_path / "pool")
        made = poolctl("admin", "backup", tmp_path / "backup", *data, "--verify", "--json")
        assert made.data["verified"] is True
        again = poolctl("admin", "backup", tmp_path / "backup", *data, "--keep", 1, "--json")
        assert again.data["dropped"] == [made.data["snapshot"]]
    target = tmp_path / "target"
    arguments = ("admin", "restore", tmp_path / "backup", "--data", target, "--json")
    assert poolctl(*arguments).data["snapshot"] == again.data["snapshot"]
    assert poolctl(*arguments).error["code"] == "pool_not_empty"
    assert poolctl("admin", "fsck", "--data", target, "--json").data["problems"] == []
    assert "every file" in poolctl("admin", "gc", "--data", target).out
    [blob] = target.glob(f"storage/blobs/*/{sha256(CONTENT)}")
    blob.chmod(0o600)
    blob.write_bytes(b"x" + CONTENT[1:])
    broken = poolctl("admin", "fsck", "--data", target, "--json")
    assert (broken.code, broken.error["code"]) == (5, "integrity")
    assert "ops-a/gaze@1" in broken.error["message"]
    assert poolctl("admin", "fsck", "--data", target, "--quick").code == 0
    assert poolctl("admin", "restore", tmp_path, "--data", target).code == 5
    told = poolctl("admin", "backup", tmp_path / "other", "--data", target, "--json")
    assert (told.code, told.error["code"]) == (5, "integrity")
    assert f"the pool's file {sha256(CONTENT)} was missing or damaged" in told.error["message"]
    assert list((tmp_path / "other").glob("snapshots/*/manifest.json")), "all else is backed up"


@pytest.mark.parametrize("arguments", ["backup DIR", "fsck --quick", "gc", "recover"])
def test_where_nothing_names_a_pool_none_is_made_up(
    poolctl: Run, tmp_path: Path, arguments: str
) -> None:
    told = poolctl("admin", *arguments.replace("DIR", str(tmp_path / "backup")).split(), "--json")
    assert (told.code, told.error["code"]) == (2, "usage")
    assert "give --config, --data or --database-url" in told.error["message"]
    assert "db upgrade" not in told.error["message"] + told.error["hint"]
    assert not (tmp_path / "backup").exists()
