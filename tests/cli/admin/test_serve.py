"""`poolctl serve` as a process, and its way out."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.cli.conftest import first_answer, run_here, start_process


@contextmanager
def serving(*arguments: object) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """Start a pool; gives the process and its first answer."""
    process = start_process("serve", *arguments, "--port", "0", "--json")
    try:
        yield process, first_answer(process)
    finally:
        process.kill()
        process.communicate()


def test_a_pool_is_one_command(tmp_path: Path) -> None:
    folder = tmp_path / "home" / "pool"
    with serving() as (process, said):
        assert said["data_folder"] == str(folder)
        assert httpx.get(f"{said['url']}/readyz", trust_env=False, timeout=60).status_code == 200
        identity = run_here(
            "auth", "whoami", "--json", POOL_ENDPOINT=said["url"], POOL_TOKEN=said["admin_token"]
        )
        assert identity.data["role"] == "admin"

        busy_folder = run_here("serve", "--data", folder, "--port", "0", "--json")
        assert (busy_folder.code, busy_folder.error["code"]) == (7, "folder_busy")
        port = said["url"].rsplit(":", 1)[1]
        busy_port = run_here("serve", "--data", tmp_path / "two", "--port", port, "--json")
        assert (busy_port.code, busy_port.error["code"]) == (7, "address_busy")

        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=60)
        assert process.returncode == 0, error
        assert "Traceback" not in error
    with serving("--data", folder) as (_, said):
        assert said["admin_token"] is None, "shown once"
