"""`poolctl serve` as a process, and its way out."""

import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cli.conftest import first_answer, first_token, run_here, start_process
from tests.conftest import PROJECT_ROOT
from tests.waiting import answers, wait_until


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
        assert httpx.get(f"{said['url']}/readyz", trust_env=False, timeout=540).status_code == 200
        identity = run_here(
            "auth", "whoami", "--json", POOL_ENDPOINT=said["url"], POOL_TOKEN=first_token(said)
        )
        assert identity.data["role"] == "admin"

        run_here("serve", "--data", folder, "--port", "0", "--json").fails(7, "folder_busy")
        port = said["url"].rsplit(":", 1)[1]
        run_here("serve", "--data", tmp_path / "two", "--port", port, "--json").fails(
            7, "address_busy"
        )

        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=540)
        assert process.returncode == 0, error
        assert "Traceback" not in error
    with serving("--data", folder) as (_, said):
        assert said["admin_token_file"] is None, "made once"
        port = said["url"].rsplit(":", 1)[1]
        shown = run_here("serve", "--data", folder, "--port", port, "--show-login", "-q")
        assert shown.out.startswith(f"{said['url']}/login?link=")
        with httpx.Client(base_url=said["url"], trust_env=False, timeout=540) as browser:
            form = browser.get(shown.out.strip()).text
            fields = dict(re.findall(r'name="(csrf|link)" value="([^"]+)"', form))
            assert browser.post("/login", data=fields).status_code == 303
            assert "admin" in browser.get("/account").text


def test_a_folder_with_other_things_is_refused(tmp_path: Path) -> None:
    (tmp_path / "photo.jpg").write_bytes(b"")
    run_here("serve", "--data", tmp_path, "--port", "0", "--json").fails(
        2, "folder_unusable", "holds other things (photo.jpg"
    )
    assert sorted(path.name for path in tmp_path.iterdir()) in (
        ["home", "photo.jpg"],
        ["photo.jpg"],
    )


@pytest.mark.parametrize("options", [(), ("--log-requests",)])
def test_requests_are_logged_on_demand_and_no_secret_is(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    process = start_process("serve", "--data", tmp_path / "pool", "--port", 0, *options)
    assert process.stdout is not None
    line = process.stdout.readline()
    while not line.startswith("pool "):
        assert line, process.communicate()
        line = process.stdout.readline()
    url = line.split()[1]
    assert httpx.get(f"{url}/healthz", trust_env=False, timeout=540).status_code == 200
    process.send_signal(signal.SIGINT)
    rest, error = process.communicate(timeout=540)
    assert ("GET /healthz 200" in error) is bool(options)
    said = rest + error
    assert "link=" not in said
    assert not re.search(r"pool_[\w-]{43}", said), "a secret where no terminal is"
    port = url.rsplit(":", 1)[1]
    assert f"serve --show-login --data {tmp_path / 'pool'} --port {port}\n" in error


def test_the_login_comes_last_on_a_terminal(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "cli", "serve", "--data", str(tmp_path), "--port", "0"]
    with subprocess.Popen(command, cwd=PROJECT_ROOT, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        with os.fdopen(ours, "rb", buffering=0) as terminal:
            text = b""
            while b"in a browser" not in text:
                text += terminal.read(4096)
            process.send_signal(signal.SIGINT)
            process.wait(540)
    lines = text.decode().splitlines()
    assert any(line.startswith("admin token") for line in lines[-6:]), lines


_PARENT = """
import sys, time
from pathlib import Path
from cli.frame.shell import pool_process
with pool_process(Path(sys.argv[1])) as (url, token):
    print(url, flush=True)
    time.sleep(600)
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs prctl")
def test_the_pool_ends_when_its_parent_is_terminated(tmp_path: Path) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", _PARENT, str(tmp_path / "pool")], stdout=subprocess.PIPE, text=True
    )
    with parent:
        assert parent.stdout is not None
        url = parent.stdout.readline().strip()
        assert answers(url)
        parent.terminate()
    wait_until(lambda: not answers(url))
