"""The kinds of jobs: for each the name of a function of request and progress.

The functions load in worker processes only, so that the runner stays small.
"""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from site_agent.work import Progress

_MOST_LOG_BYTES = 64_000


KINDS: Mapping[str, str] = {
    "analyse": "site_agent.jobs.analysing:analyse",
    "study": "site_agent.jobs.analysing:gather_study",
    "criteria": "site_agent.jobs.analysing:judge_conclusion",
    "look": "site_agent.jobs.analysing:look_at_videos",
    "draw": "site_agent.jobs.analysing:draw_video",
    "starter": "site_agent.jobs.analysing:train_starter",
    "download": "site_agent.jobs.modelling:download",
    "evaluate": "site_agent.jobs.modelling:evaluate",
    "merge": "site_agent.jobs.modelling:merge_models",
    "upload": "site_agent.jobs.modelling:upload",
    "check": "site_agent.jobs.modelling:check",
    "train": "site_agent.jobs.modelling:train",
    "contribute": "site_agent.jobs.modelling:contribute",
}
"""``module:name`` of each kind; gets the request with ``id`` and ``jobs`` (their folder), and
progress."""


def do_job(payload: tuple[Path, str, Mapping[str, Any]], progress: Progress) -> Any:
    """Do a job in this process, with all output in the log of its folder."""
    folder, kind, request = payload
    module, _, name = KINDS[kind].partition(":")
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
        _flush()
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
        try:
            yield
        finally:
            _flush()
            os.dup2(kept, 1)
            os.dup2(kept, 2)
            os.close(kept)


def _flush() -> None:
    if sys.stderr is not None:  # as in programs without console on Windows
        sys.stderr.flush()
