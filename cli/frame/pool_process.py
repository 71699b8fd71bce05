"""A pool as a process of its own, for commands that show everything on one machine.

The pool process runs this module, not `cli`: it has to end with its parent, also where SIGTERM or
SIGKILL leaves the parent no time to stop it.
"""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_POOL_START_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 15.0


@contextmanager
def pool_process(data_folder: Path) -> Iterator[tuple[str, str]]:
    """Run ``poolctl serve`` as its own process while the block runs; gives URL and admin token."""
    from site_agent.errors import InvalidInputError
    from site_agent.runs.child_process import start_python, stop

    data_folder.mkdir(parents=True, exist_ok=True)
    log_file = data_folder / "server.log"
    words = ["serve", "--data", str(data_folder), "--port", "0", "--json"]
    with log_file.open("wb") as log:
        process = start_python(
            "cli.frame.pool_process", *words, stderr=log, environment={"PYTHONUNBUFFERED": "1"}
        )
        try:
            answer = _first_answer(process)
            if not answer.get("success"):
                message = answer.get("error", {}).get("message") or f"see {log_file}"
                raise InvalidInputError(f"the pool did not start: {message}")
            yield answer["data"]["url"], answer["data"]["admin_token"]
        finally:
            stop(process, grace_s=_STOP_TIMEOUT_S)


def _first_answer(process: subprocess.Popen[bytes]) -> dict[str, Any]:
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


def _run_pool() -> int:
    """Run the command of this process, ``poolctl serve``, for as long as its parent lives."""
    from cli.frame.app import main
    from site_agent.runs.child_process import die_with_parent

    die_with_parent()
    return main()


if __name__ == "__main__":
    sys.exit(_run_pool())
