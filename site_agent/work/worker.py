"""A worker process, from inside: ``python -m site_agent.work.worker``.

It gets tasks as pickles, each a function of ours and its arguments, and answers with lines of JSON:
any number of ``{"progress": share, "text": text}``, then ``{"done": ...}`` or ``{"failed": text}``.
Modules and files that one task has loaded stay for the next.
"""

import gc
import json
import os
import pickle
import sys
import time
import traceback
from pathlib import Path
from typing import IO, Any

from aggregators.errors import AggregatorError
from site_agent.errors import SiteAgentError
from site_agent.work.processes import end_with_parent

# Each line costs the parent some work; a person needs no more.
_LEAST_SILENCE_S = 0.2


def main() -> None:
    """Do tasks until standard input ends."""
    end_with_parent()
    # Loaded objects stay: looking through them for garbage would take a fifth of the time.
    gc.set_threshold(50_000)
    with os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1) as events:
        # Output of libraries must not come between the events.
        os.dup2(2, 1)
        tasks = sys.stdin.buffer
        while True:
            try:
                do, payload = pickle.load(tasks)
            except EOFError:
                return
            _do_one(do, payload, events)


def _do_one(do: Any, payload: Any, events: IO[str]) -> None:
    reported_s = 0.0

    def say(event: dict[str, Any]) -> None:
        events.write(json.dumps(event) + "\n")

    def report(share: float | None, text: str) -> None:
        nonlocal reported_s
        if time.monotonic() - reported_s >= _LEAST_SILENCE_S:
            reported_s = time.monotonic()
            say({"progress": share, "text": text})

    try:
        result = do(payload, report)
    except (SiteAgentError, AggregatorError) as error:
        say({"failed": str(error)})
    except OSError as error:
        # The system does not always name a file.
        say({"failed": f"{error.filename}: {error.strerror}" if error.filename else str(error)})
    except Exception as error:  # a fault of one task must not end the others
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(place.filename).name}, line {place.lineno}"
        say({"failed": f"unexpected {type(error).__name__}: {error} ({where})"})
    else:
        say({"done": result})


if __name__ == "__main__":
    main()
