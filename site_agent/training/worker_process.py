"""The parent's side of a training: start the worker, follow its output, stop it cleanly.

The output of dlib is turned into progress. Landmark training prints
``Progress: 400/600 (66.67%). Time remaining: 12s.`` once a second, overwriting its line. Detector
training prints a block after each iteration, with the iteration count and the risk gap (the largest
distance of the solution from the best one).
"""

import codecs
import errno
import json
import math
import os
import re
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import IO, Any, NamedTuple

from aggregators.whole_file import write_whole
from site_agent.errors import TrainingDataError, TrainingFailedError
from site_agent.training.worker import EVENT_MARK
from site_agent.work import Progress, no_progress
from site_agent.work.processes import (
    Process,
    available_memory_bytes,
    describe_end,
    start_python,
    stop,
    was_killed,
)

_TREES = re.compile(r"Progress: (\d+)/(\d+) .*Time remaining: (.*?)\.?\s*$")
_RISK_GAP = re.compile(r"risk gap:\s+(\S+)")
_ITERATION = re.compile(r"iter:\s+(\d+)")
_BREAKS = re.compile(r"[\r\n]")
# Iterations go on for a while after the gap has come close to the limit.
_MOST_BEFORE_END = 0.99


class TrainingProgress(NamedTuple):
    """The progress of a training: 0 to 1 (None where it is not known), and words for a person.

    The fraction never falls during one training.
    """

    fraction: float | None
    text: str


ProgressReader = Callable[[str], TrainingProgress | None]
"""Returns the progress that a line reports, None where it reports no progress."""


def split_lines(pieces: Iterable[str]) -> Iterator[str]:
    """Yield the lines of a stream that arrives in pieces, as they are complete.

    Lines end with carriage returns or line feeds; empty ones are left out.
    """
    rest = ""
    for piece in chain(pieces, "\n"):
        *lines, rest = _BREAKS.split(rest + piece)
        yield from (line.strip() for line in lines if line.strip())


def read_ert_progress(line: str) -> TrainingProgress | None:
    """Read a line of landmark training."""
    match = _TREES.search(line)
    if match is None or not int(match[2]):
        return None
    trees, total, left = int(match[1]), int(match[2]), match[3]
    return TrainingProgress(min(1.0, trees / total), f"tree {trees} of {total}, {left} left")


@dataclass
class HogSvmProgressReader:
    """Reads the output of detector training.

    The risk gap falls from some tens to `epsilon`, about as a power of the iteration count and
    not steadily; the fraction is the part of the way on a logarithmic scale, held at its highest.
    """

    epsilon: float
    """Training ends when the risk gap stays below it."""
    _first_gap: float = field(default=0.0, init=False)
    _gap: float = field(default=math.inf, init=False)
    _fraction: float = field(default=0.0, init=False)

    def read(self, line: str) -> TrainingProgress | None:
        """Read a line."""
        if match := _RISK_GAP.search(line):
            self._note_gap(match[1])
            return None
        match = _ITERATION.search(line)
        if match is None or not math.isfinite(self._gap):
            return None
        text = f"iteration {match[1]}, gap {self._gap:.2g} of {self.epsilon:g}"
        return TrainingProgress(self._fraction, text)

    def _note_gap(self, text: str) -> None:
        try:
            gap = float(text)
        except ValueError:
            return
        if not math.isfinite(gap):
            return
        self._gap = gap
        self._first_gap = max(self._first_gap, gap)
        if gap <= 0 or self._first_gap <= self.epsilon:
            self._fraction = _MOST_BEFORE_END
            return
        way = math.log(self._first_gap / gap) / math.log(self._first_gap / self.epsilon)
        self._fraction = max(self._fraction, min(_MOST_BEFORE_END, way))


# Of the whole time, what reading the images takes; only for the progress bar.
_READING_SHARE = 0.03
_CHUNK_BYTES = 4096
_KEPT_LINES = 20
# Errors of reading an image, reported as a fault of the data and not of the training.
_DATA_ERRORS = {"ImageFileError", "ValueError"}


def run_worker(
    job: dict[str, Any],
    reader: ProgressReader,
    *,
    progress: Progress = no_progress,
    needed_memory_bytes: int,
    data_path: Path | None = None,
) -> dict[str, Any]:
    """Train in a child process, and return the facts that it reports.

    The child is killed when anything goes wrong here, be it Ctrl-C or an exception in `progress`,
    and (on Linux) when this process dies.

    `job`: for `site_agent.training.worker`; ``folder`` is added: a temporary folder.
    `needed_memory_bytes`: estimate, for the message when the child is killed.

    Raises `TrainingDataError`: an image cannot be read. `TrainingFailedError`: dlib refuses,
    crashes or is killed. `OSError`: the disk has no room for the model.
    """
    with tempfile.TemporaryDirectory(prefix="poolctl-training-") as folder:
        job_file = Path(folder) / "job.json"
        write_whole(job_file, json.dumps({**job, "folder": folder}))
        process = start_python("site_agent.training.worker", str(job_file))
        try:
            outcome = _follow(process, reader, progress)
        finally:
            stop(process)
    if "done" in outcome:
        return dict(outcome["done"])
    if outcome.get("type") in _DATA_ERRORS:
        raise TrainingDataError(data_path, outcome["error"])
    if "serializing" in outcome.get("error", ""):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), job["output"])
    raise TrainingFailedError(_failure_text(outcome, process.returncode, needed_memory_bytes))


def require_memory(needed_bytes: int, advice: str) -> None:
    """Refuse a training that would not fit, before any time is spent."""
    available = available_memory_bytes()
    if needed_bytes > available:
        raise TrainingFailedError(
            f"this training needs about {needed_bytes / 1e9:.1f} GB of memory, and "
            f"{available / 1e9:.1f} GB are available; {advice}"
        )


def _follow(process: Process, reader: ProgressReader, progress: Progress) -> dict[str, Any]:
    outcome: dict[str, Any] = {}
    printed: deque[str] = deque(maxlen=_KEPT_LINES)
    assert process.stdout is not None
    for line in split_lines(_pieces(process.stdout)):
        if line.startswith(EVENT_MARK):
            event = json.loads(line.removeprefix(EVENT_MARK))
            if "reading" in event:
                number, total = event["reading"], event["of"]
                progress(_READING_SHARE * number / total, f"reading image {number} of {total}")
            else:
                outcome = event
        elif step := reader(line):
            share = None if step.fraction is None else step.fraction * (1 - _READING_SHARE)
            progress(None if share is None else _READING_SHARE + share, step.text)
        else:
            printed.append(line)
    process.wait()
    return outcome or {"printed": list(printed)}


def _pieces(stream: IO[bytes]) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    # os.read returns what there is; a buffered read would wait for a full buffer.
    while piece := os.read(stream.fileno(), _CHUNK_BYTES):
        yield decoder.decode(piece)


def _failure_text(outcome: dict[str, Any], code: int, needed_memory_bytes: int) -> str:
    if "error" in outcome:
        return f"dlib could not train: {' '.join(outcome['error'].split())}"
    if was_killed(code):
        why = (
            f"; most likely memory ran out: this training needs about "
            f"{needed_memory_bytes / 1e9:.1f} GB"
        )
    else:
        why = f": {' / '.join(outcome.get('printed', [])[-3:]) or 'it printed nothing'}"
    return f"the training process {describe_end(code)}{why}"
