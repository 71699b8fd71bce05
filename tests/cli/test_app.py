"""``poolctl app``: its start and its second start, with and without a terminal."""

import shlex
import subprocess
import sys
import threading
from pathlib import Path
from urllib.parse import unquote

import httpx
import pytest

from cli.app import open_from_icon
from tests.cli.conftest import Run, first_answer, start_process


def test_a_second_start_opens_the_running_app_with_a_ticket_of_its_own(
    poolctl: Run, tmp_path: Path
) -> None:
    arguments = ("app", "--no-browser", "--json", "--port", 0, "-o", tmp_path)
    process = start_process(*arguments)
    try:
        first = first_answer(process)["url"]
        again = poolctl(*arguments)
        told = poolctl(*arguments[:-1], tmp_path / "other").err
    finally:
        process.terminate()
        process.wait()
    second = again.data["url"]
    assert "results" not in again.data, "the running app keeps its folder"
    assert "-o is not used" in told
    assert "Ctrl-C" not in told
    assert first.partition("#")[0] == second.partition("#")[0]
    assert first != second
    assert "127.0.0.1" in first


def test_the_app_ends_by_its_page_and_needs_no_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def browse(address: str) -> None:
        page = Path(unquote(address.removeprefix("file://"))).read_text()
        entrance = page.partition('href="')[2].partition('"')[0]
        asked.append(entrance)
        threading.Thread(target=enter_and_quit, args=(entrance,)).start()

    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("webbrowser.open", browse)
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    assert open_from_icon() == 0
    assert len(asked) == 1
    assert asked[0].partition("#")[0] in (tmp_path / "home" / "app" / "log.txt").read_text()


def enter_and_quit(entrance: str) -> None:
    address, _, ticket = entrance.partition("/enter#")
    headers = {"origin": address.rpartition("/")[0]}
    with httpx.Client(trust_env=False, timeout=540) as client:
        client.post(f"{address}/enter", data={"ticket": ticket}, headers=headers)
        csrf = (
            client.get(f"{address}/").text.partition('name="csrf" content="')[2].partition('"')[0]
        )
        client.post(f"{address}/quit", data={"csrf": csrf}, headers=headers)


@pytest.mark.parametrize(("platform", "name"), [("linux", ".desktop"), ("darwin", ".command")])
def test_an_icon_opens_the_app(
    poolctl: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, platform: str, name: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert "no desktop" in poolctl("app", "--shortcut").err
    (tmp_path / "Desktop").mkdir()
    monkeypatch.setattr(sys, "platform", platform)
    path = Path(poolctl("app", "--shortcut", "--json").data["shortcut"])
    assert path == tmp_path / "Desktop" / f"poolctl{name}"
    assert path.stat().st_mode & 0o100
    (line,) = (
        line for line in path.read_text().splitlines() if line.startswith(("Exec=", "exec "))
    )
    python, *arguments = shlex.split(line.removeprefix("Exec=").removeprefix("exec "))
    assert python == sys.executable
    assert arguments[:2] == ["-P", "-c"]
    imported = arguments[2].partition(";")[0]
    assert subprocess.run([python, "-c", imported], check=False).returncode == 0
