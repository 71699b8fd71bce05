"""The kinds of jobs: for each the name of a function of request and progress.

The functions load in worker processes only, so that the runner stays small.
"""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from site_agent.work import Progress

_MOST_LOG_BYTES = 64_000


@dataclass(frozen=True)
class Kind:
    """A kind of job."""

    function: str
    """``module:name``; gets the request with ``id`` and ``jobs`` (their folder), and progress."""
    is_alone: bool = False
    """Uses all cores, so no other job runs at its side."""


KINDS: Mapping[str, Kind] = {
    "analyse": Kind("site_agent.jobs.analysing:analyse"),
    "study": Kind("site_agent.jobs.analysing:gather_study"),
    "draw": Kind("site_agent.jobs.analysing:draw_video"),
    "starter": Kind("site_agent.jobs.analysing:train_starter", is_alone=True),
}


def do_job(payload: tuple[Path, str, Mapping[str, Any]], progress: Progress) -> Any:
    """Do a job in this process, with all output in the log of its folder."""
    folder, kind, request = payload
    module, _, name = KINDS[kind].function.partition(":")
    with _printing_to(folder / "log.txt"):
        do = getattr(import_module(module), name)
        return do({**request, "id": folder.name, "jobs": str(folder.parent)}, progress)


@contextmanager
def _printing_to(path: Path) -> Iterator[None]:
    """Send both outputs of this process, libraries included, to the end of a file."""
    kept = os.dup(2)
    if path.exists():
        path.write_bytes(path.read_bytes()[-_MOST_LOG_BYTES:])
    with path.open("ab") as log:
        sys.stderr.flush()
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(kept, 1)
            os.dup2(kept, 2)
            os.close(kept)
