"""Running `poolctl` in tests: in this process where that will do, as a process of its own else."""

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cli.frame.app import main
from tests.conftest import PROJECT_ROOT
from tests.site_agent.live_pool import LivePool, live_pool


@dataclass(frozen=True)
class Outcome:
    """The result of one run of `poolctl`."""

    code: int
    out: str
    err: str

    @property
    def envelope(self) -> dict[str, Any]:
        """Standard output as the JSON envelope that ``--json`` promises."""
        content = json.loads(self.out)
        assert isinstance(content, dict)
        assert content["success"] is (self.code == 0), content
        assert set(content) == {"success", "data" if self.code == 0 else "error"}
        if self.code:
            assert set(content["error"]) == {"code", "message", "hint"}
            assert content["error"]["code"]
            assert content["error"]["message"]
        return content

    @property
    def data(self) -> Any:
        assert self.code == 0, self.out + self.err
        return self.envelope["data"]

    @property
    def error(self) -> dict[str, str]:
        assert self.code != 0, self.out
        return self.envelope["error"]

    def fails(self, code: int, *reasons: str) -> None:
        """Check the exit code, and that the error's code, message or hint gives reasons."""
        text = " ".join(self.error.values()) if self.out.startswith("{") else self.err
        told = " ".join(text.split())
        assert self.code == code, told
        for reason in reasons:
            assert " ".join(reason.split()) in told


Run = Callable[..., Outcome]


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LivePool]:
    """Run a pool for the tests of a module."""
    with live_pool(tmp_path_factory.mktemp("pool")) as running:
        yield running


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep tests from the settings and the cache of the person running them."""
    for name in [name for name in os.environ if name.startswith("POOL_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("POOL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")


@pytest.fixture
def poolctl(capfd: pytest.CaptureFixture[str]) -> Run:
    """Run a command in this process."""

    def run(*arguments: object) -> Outcome:
        capfd.readouterr()
        try:
            code = main([str(word) for word in arguments])
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1
        captured = capfd.readouterr()
        return Outcome(code, captured.out, captured.err)

    return run


class Terminal(io.StringIO):
    """A standard output that is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def at_80_columns(poolctl: Run, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Run a command on a terminal of 80 columns; gives the lines that it prints."""

    def run(*arguments: object) -> list[str]:
        terminal = Terminal()
        with monkeypatch.context() as patched:
            patched.setattr(sys, "stdout", terminal)
            patched.setenv("COLUMNS", "80")
            shown = poolctl(*arguments)
        assert shown.code == 0, shown.err
        lines = terminal.getvalue().splitlines()
        # Paths are not broken, so that they can be copied.
        assert all(len(line) <= 80 or "/" in line for line in lines), lines
        return lines

    return run


def run_here(*arguments: object, **environment: str) -> Outcome:
    """Run a command in this process, also where a test has no ``capfd``."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        for name, value in environment.items():
            patch.setenv(name, value)
        try:
            code = main([str(word) for word in arguments])
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1
    return Outcome(code, out.getvalue(), err.getvalue())


_STARTED: list[subprocess.Popen[str]] = []


@pytest.fixture(autouse=True)
def _nothing_left_running() -> Iterator[None]:
    """End the processes that a failed test left running."""
    yield
    while _STARTED:
        with _STARTED.pop() as process:
            process.kill()


def start_process(*arguments: object, **environment: str) -> subprocess.Popen[str]:
    """Start a command as a process of its own, which lasts as long as the test at most."""
    process = subprocess.Popen(
        [sys.executable, "-m", "cli", *[str(word) for word in arguments]],
        cwd=PROJECT_ROOT,
        env=os.environ | environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    _STARTED.append(process)
    return process


def run_process(*arguments: object, **environment: str) -> Outcome:
    """Run a command as a process of its own."""
    process = start_process(*arguments, **environment)
    out, err = process.communicate(timeout=540)
    return Outcome(process.returncode, out, err)


def first_token(answer: Any) -> str:
    """Return the token of a pool's first admin, from the file that its answer names."""
    return Path(answer["admin_token_file"]).read_text().strip()


def first_answer(process: subprocess.Popen[str]) -> Any:
    """Return the data of the first JSON envelope that a process prints."""
    assert process.stdout is not None
    text = ""
    for line in process.stdout:
        text += line
        if line == "}\n":
            return json.loads(text)["data"]
    raise AssertionError(process.communicate())
