"""Look at an uploaded file, in a process of its own with little memory and little time.

Run by the server as ``python -m pool_server.transfers.model_check``. What reads a stranger's
bytes may crash or grow; here it takes nothing with it. The process needs no network, no
database and no secret, and writes one JSON object to standard output::

    {"accepted": true, "kind": ..., "format": ..., "fingerprint": {...}, "merge_keys": {...}}
    {"accepted": false, "message": "what was found and what was expected"}
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

# The answer goes to a file of limited size: a fingerprint that fills a disk is none.
MOST_OUTPUT_BYTES = 64 * 1024 * 1024


def limit_resources(
    memory_bytes: int, time_s: float, most_output_bytes: int = MOST_OUTPUT_BYTES
) -> None:
    """Bound this process: address space, processor and wall time, files written, core dumps."""
    whole_seconds = max(1, math.ceil(time_s))
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CPU, (whole_seconds, whole_seconds + 1))
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_output_bytes, most_output_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Should the server die, nobody else ends this process.
    signal.setitimer(signal.ITIMER_REAL, time_s)


def check_model(path: Path, name: str) -> dict[str, Any]:
    """Read a model file of any known format and describe it.

    Parameters
    ----------
    name : str
        What to call the file in messages; its path means nothing to the uploader.
    """
    from aggregators.errors import AggregatorError, FormatError
    from aggregators.formats import fingerprint, read_model, recognise
    from aggregators.methods import merge_keys

    try:
        format_name = recognise(path).name
        model = read_model(path, max_bytes=path.stat().st_size)
        described = fingerprint(model, format_name)
        return {
            "accepted": True,
            "kind": described["kind"],
            "format": described["format"],
            "fingerprint": described,
            "merge_keys": merge_keys(described),
        }
    except FormatError as error:
        return {"accepted": False, "message": str(error.about(name))}
    except AggregatorError as error:
        return {"accepted": False, "message": f"{name}: {error}"}
    except MemoryError:
        return {
            "accepted": False,
            "message": f"{name}: reading the file needs more memory than the pool allows",
        }


def write_answer(answer: Mapping[str, Any]) -> None:
    try:
        text = json.dumps(answer, allow_nan=False)
    except ValueError:
        text = json.dumps(
            {"accepted": False, "message": "the model's settings hold values that are not finite"}
        )
    sys.stdout.write(text)
    sys.stdout.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("path", type=Path)
    parser.add_argument("--name", default="the file")
    parser.add_argument("--memory-bytes", type=int, required=True)
    parser.add_argument("--time-s", type=float, required=True)
    options = parser.parse_args(arguments)
    limit_resources(options.memory_bytes, options.time_s)
    write_answer(check_model(options.path, options.name))
    return 0


if __name__ == "__main__":
    sys.exit(main())
