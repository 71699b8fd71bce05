"""`poolctl serve` as a process, and its way out."""

import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from cli.server import repeat_on_enter
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
        port = said["url"].rsplit(":", 1)[1]
        shown = run_here("serve", "--data", folder, "--port", port, "--show-login", "-q")
        assert shown.out.startswith(f"{said['url']}/login?link=")
        with httpx.Client(base_url=said["url"], trust_env=False, timeout=60) as browser:
            form = browser.get(shown.out.strip()).text
            fields = dict(re.findall(r'name="(csrf|link)" value="([^"]+)"', form))
            assert browser.post("/login", data=fields).status_code == 303
            assert "admin" in browser.get("/account").text


def test_a_folder_with_other_things_is_refused(tmp_path: Path) -> None:
    (tmp_path / "photo.jpg").write_bytes(b"")
    refused = run_here("serve", "--data", tmp_path, "--port", "0", "--json")
    assert (refused.code, refused.error["code"]) == (2, "folder_unusable")
    assert "holds other things (photo.jpg" in refused.error["message"]
    assert sorted(path.name for path in tmp_path.iterdir()) in (
        ["home", "photo.jpg"],
        ["photo.jpg"],
    )


def test_requests_are_logged_on_demand_and_the_login_comes_last(tmp_path: Path) -> None:
    for options, expected in (((), False), (("--log-requests",), True)):
        process = start_process("serve", "--data", tmp_path / f"{expected}", "--port", 0, *options)
        assert process.stdout is not None
        lines = []
        while not lines or not lines[-1].startswith("in a browser"):
            lines.append(process.stdout.readline())
            assert lines[-1], process.communicate()
        assert lines[-2].startswith("admin token")
        url = next(line.split()[1] for line in lines if line.startswith("pool"))
        assert httpx.get(f"{url}/healthz", trust_env=False, timeout=60).status_code == 200
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=60)
        assert ("GET /healthz 200" in error) is expected


def test_the_login_is_shown_again_on_enter() -> None:
    shown: list[str] = []
    repeat_on_enter(["\n", "\n"], lambda: shown.append("link"))
    assert shown == ["link", "link"]
