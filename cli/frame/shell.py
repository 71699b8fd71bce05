"""Show command lines of poolctl and run them, for commands that teach by doing."""

import io
import json
import os
import shlex
import shutil
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, chdir, contextmanager, redirect_stdout, suppress
from pathlib import Path
from typing import Any

from cli.frame.app import main
from cli.frame.errors import CliError, ExitCode, Outcome
from cli.frame.output import Invocation
from site_agent.errors import InvalidInputError
from site_agent.work.processes import Process, start_python, stop

_POOL_START_TIMEOUT_S = 600.0
"""For a pool that hangs: the first start on a busy machine can take minutes."""
_STOP_TIMEOUT_S = 15.0


@contextmanager
def pool_process(data_folder: Path) -> Iterator[tuple[str, str]]:
    """Run ``poolctl serve`` as its own process while the block runs; gives URL and admin token."""
    data_folder.mkdir(parents=True, exist_ok=True)
    log_file = data_folder / "server.log"
    arguments = ["serve", "--data", str(data_folder), "--port", "0", "--json"]
    with log_file.open("wb") as log:
        process = start_python("cli", *arguments, stderr=log, environment={"PYTHONUNBUFFERED": "1"})
        try:
            answer = _first_answer(process)
            if not answer.get("success"):
                message = answer.get("error", {}).get("message") or f"see {log_file}"
                raise InvalidInputError(f"the pool did not start: {message}")
            token_file = Path(answer["data"]["admin_token_file"])
            yield answer["data"]["url"], token_file.read_text(encoding="ascii").strip()
        finally:
            stop(process, grace_s=_STOP_TIMEOUT_S)


def _first_answer(process: Process) -> dict[str, Any]:
    """Read the JSON envelope that the pool prints when it answers; {} when it ends before."""
    timer = threading.Timer(_POOL_START_TIMEOUT_S, process.kill)
    timer.start()
    text = b""
    try:
        assert process.stdout is not None
        for line in process.stdout:
            text += line
            try:
                answer = json.loads(text)
            except json.JSONDecodeError:
                continue
            return answer if isinstance(answer, dict) else {}
        return {}
    finally:
        timer.cancel()


class _ShownText(io.StringIO):
    """The answer of a command that is shown on standard error, and as wide as that."""

    def isatty(self) -> bool:
        return sys.stderr.isatty()


class Shell:
    """Shows command lines and runs them in the folder of the quickstart, next to a pool.

    Commands run in this process: most take milliseconds, and starting a process would make that
    a second.
    """

    def __init__(self, invocation: Invocation, folder: Path) -> None:
        self.folder = folder
        self.endpoint = self.admin_token = ""
        self._invocation = invocation
        self._programs = Path(sys.argv[0]).absolute().parent
        self._steps = 0
        self._stack = ExitStack()

    def __enter__(self) -> "Shell":
        with ExitStack() as stack:
            # A login of the user's own must not reach any of the sites.
            hidden = {name: None for name in os.environ if name.startswith("POOL_")}
            stack.enter_context(_environment(hidden))
            stack.enter_context(chdir(self.folder))
            if program_name() != "poolctl":
                self._invocation.note(f"$ PATH={self._programs}:$PATH")
            self._invocation.note(f"$ cd {self.folder}")
            self._invocation.note("$ poolctl serve --data pool --port 0 &")
            self.endpoint, self.admin_token = stack.enter_context(pool_process(Path("pool")))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def title(self, text: str) -> None:
        """Announce a step."""
        self._steps += 1
        self._invocation.note(f"\n{self._steps}. {text}")

    def show(self, command_line: str, home: str) -> None:
        """Run a command, and show its answer as the user will see it."""
        answer = _ShownText()
        self._run_here(command_line, home, "", answer)
        self._invocation.note(answer.getvalue().rstrip("\n"))

    def run(self, command_line: str, home: str = "", *, stdin: str = "") -> Any:
        """Run a command, and return the data of its answer."""
        answer = io.StringIO()
        self._run_here(command_line, home, stdin, answer, "--json", "--quiet")
        return json.loads(answer.getvalue())["data"]

    def _run_here(
        self, command_line: str, home: str, stdin: str, answer: io.StringIO, *conventions: str
    ) -> None:
        shown = f"poolctl {command_line}"
        if home:
            shown = f"POOL_HOME={home} {shown}"
        self._invocation.note(f"$ {shown}")
        before, sys.stdin = sys.stdin, io.StringIO(stdin)
        try:
            with _environment({"POOL_HOME": home or None}), redirect_stdout(answer):
                code = main([*shlex.split(command_line), *conventions])
        finally:
            sys.stdin = before
        if code == ExitCode.INTERRUPTED:
            raise KeyboardInterrupt
        if code != ExitCode.DONE:
            text = answer.getvalue()
            with suppress(ValueError):
                text = json.loads(text)["error"]["message"]
            raise CliError(f"{shown}: {text}", Outcome(ExitCode.UNEXPECTED, "command_failed"))


@contextmanager
def _environment(variables: Mapping[str, str | None]) -> Iterator[None]:
    """Set variables of the environment, or unset them (None), while the block runs."""
    before = dict(os.environ)
    try:
        for name, value in variables.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def program_name() -> str:
    """Return the program as the user must type it: its name if the shell finds it."""
    return "poolctl" if shutil.which("poolctl") else sys.argv[0]
