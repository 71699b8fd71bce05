"""Settings from a file, and ``poolctl serve --check``."""

import os
from pathlib import Path

import pytest

from tests.cli.conftest import Run


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("POOL_SERVER_"):
            monkeypatch.delenv(name)
    # Variables set by the command itself are restored as well.
    monkeypatch.setenv("POOL_SERVER_CONFIG", "")


def test_all_problems_are_told_at_once(
    poolctl: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "pool.toml"
    config.write_text('port = "many"\nstorage = "cupboard"\ncurrated = true\n')
    monkeypatch.setenv("POOL_SERVER_DATABASE_URL", "mysql://pool:hunter2@db/pool")
    monkeypatch.setenv("POOL_SERVER_MAX_MODEL_BITES", "12")
    told = poolctl("serve", "--check", "--config", config, "--json")
    assert (told.code, told.error["code"]) == (2, "configuration")
    message = told.error["message"]
    for arguments in (
        f"port in {config}: ",
        f"storage in {config}: ",
        f"currated in {config}: there is no such setting (did you mean curated?)",
        "POOL_SERVER_DATABASE_URL: expected postgresql://",
        "POOL_SERVER_MAX_MODEL_BITES: there is no such setting (did you mean max_model_bytes?)",
    ):
        assert arguments in message, arguments
    assert "hunter2" not in message + told.err
    refused = poolctl("serve", "--config", config, "--json")
    assert "POOL_SERVER_DATABASE_URL: expected" in refused.error["message"]
    monkeypatch.delenv("POOL_SERVER_DATABASE_URL")
    config.write_text('storagee = "s3"\nlog_level = "LOUD"\n')
    refused = poolctl("serve", "--config", config, "--json")
    assert f"log_level in {config}: expected DEBUG, INFO" in refused.error["message"]
    config.write_text('storagee = "s3"\n')
    refused = poolctl("serve", "--config", config, "--json")
    arguments = f"storagee in {config}: there is no such setting (did you mean storage?)"
    assert refused.error["message"].startswith(arguments)


def test_no_command_ignores_a_variable_that_is_no_setting(
    poolctl: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POOL_SERVER_S3_SSE", "aws:kms")
    refused = poolctl("serve", "--data", tmp_path / "pool", "--json")
    assert refused.code == 2
    assert refused.error["message"].startswith("POOL_SERVER_S3_SSE: there is no such setting")
    assert not (tmp_path / "pool").exists()


def test_what_the_settings_name_is_tried(poolctl: Run, tmp_path: Path) -> None:
    config = tmp_path / "pool.toml"
    config.write_text(
        "database_url = 'postgresql://pool:hunter2@127.0.0.1:9/pool'\n"
        "storage = 's3'\ns3_bucket = 'models'\ns3_endpoint_url = 'http://127.0.0.1:9'\n"
        "s3_access_key_id = 'a'\ns3_secret_access_key = 'hunter2'\n"
        f"data_folder = '{tmp_path}'\nhost = '0.0.0.0'\nmax_model_bytes = {10**18}\n"
    )
    told = poolctl("serve", "--check", "--config", config, "--json")
    assert told.code == 2
    assert f"database_url in {config}: " in told.error["message"]
    assert f"storage in {config}: " in told.error["message"]
    assert "the bucket 'models' at http://127.0.0.1:9" in told.error["message"]
    assert f"host in {config}: the pool listens on 0.0.0.0 without encryption" in told.err
    assert "can read" in told.err, "the file with a password in it"
    assert f"data_folder in {config}: only " in told.err, "the largest model has no room"
    assert "bytes of inputs for a merge" in told.err
    assert "hunter2" not in told.error["message"] + told.err
