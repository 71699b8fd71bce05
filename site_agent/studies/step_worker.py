"""The child process that does steps: ``python -m site_agent.studies.step_worker``.

Takes pickled `StepJob`s from standard input, one after the other, and ends with it. What it has to
say are lines of JSON on standard output: ``{"progress": share, "text": text}``, and in the end of
each job ``{"done": warnings}`` or ``{"failed": text}``. Everything that libraries print goes to
standard error.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
import time
import traceback
from pathlib import Path
from typing import IO, Any

from aggregators.errors import AggregatorError
from site_agent.child_process import die_with_parent
from site_agent.errors import SiteAgentError
from site_agent.studies.step_jobs import StepJob, run_job

# Each line costs the parent some work; a person needs no more.
_LEAST_SILENCE_S = 0.2


def main() -> None:
    """Do jobs until standard input ends."""
    die_with_parent()
    with os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1) as events:
        os.dup2(2, 1)
        jobs = sys.stdin.buffer
        while True:
            try:
                job = pickle.load(jobs)
            except EOFError:
                return
            _do(job, events)


def _do(job: StepJob, events: IO[str]) -> None:
    told_s = 0.0

    def say(event: dict[str, Any]) -> None:
        events.write(json.dumps(event) + "\n")

    def tell(share: float | None, text: str) -> None:
        nonlocal told_s
        if time.monotonic() - told_s >= _LEAST_SILENCE_S:
            told_s = time.monotonic()
            say({"progress": share, "text": text})

    try:
        warnings = run_job(job, tell)
    except (SiteAgentError, AggregatorError) as error:
        say({"failed": str(error)})
    except OSError as error:
        say({"failed": f"{error.filename or job.folder}: {error.strerror or error}"})
    except Exception as error:  # a fault of one step must not end the study
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(place.filename).name}, line {place.lineno}"
        say({"failed": f"unexpected {type(error).__name__}: {error} ({where})"})
    else:
        say({"done": list(warnings)})


if __name__ == "__main__":
    main()
