"""The process of a server or a site, in the foreground until it is stopped."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping
from typing import IO

from site_agent.errors import BusyError, FederationError
from site_agent.federated.engines.flare.kits import Kit
from site_agent.runs.child_process import start_python, stop
from site_agent.runs.lock import locked

_STOP_LIMIT_S = 10.0


def run_kit(kit: Kit, environment: Mapping[str, str], on_line: Callable[[str], None]) -> None:
    """Run a server or a site until Ctrl-C, or until its process ends by itself.

    Parameters
    ----------
    environment : mapping of str to str
        Variables for the kit's processes.
    on_line : callable
        Called with each line of their log.

    Raises
    ------
    BusyError
        The kit is in use.
    FederationError
        The process ended by itself.
    """
    busy = BusyError(f"{kit.folder} is in use: its {kit.role} runs already")
    with locked(kit.folder / ".lock", busy=busy):
        process = start_python(
            "site_agent.federated.engines.flare.flare_process",
            str(kit.folder),
            environment=environment,
        )
        reader = threading.Thread(target=_read, args=(process.stdout, on_line), daemon=True)
        reader.start()
        try:
            code = process.wait()
        finally:
            stop(process, grace_s=_STOP_LIMIT_S)
            reader.join(_STOP_LIMIT_S)
    raise FederationError(
        f"the {kit.role} ended with code {code}", hint=f"see {kit.folder / 'log.txt'}"
    )


def _read(lines: IO[bytes] | None, on_line: Callable[[str], None]) -> None:
    with contextlib.suppress(ValueError, OSError):  # closed while it is read
        for line in lines or ():
            on_line(_plain(line.decode("utf-8", "replace").rstrip()))


def _plain(line: str) -> str:
    """Return a line of FLARE's log, or what it means."""
    if "CERTIFICATE_VERIFY_FAILED" in line:
        return "refused: the other side's certificate is not of this federation"
    if "UNKNOWN_CA" in line or "CERTIFICATE_UNKNOWN" in line:
        return "refused: this kit's certificate is not of the other side's federation"
    return line
