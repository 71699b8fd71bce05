"""The parent's side of a training: start the worker, follow what it prints, stop it cleanly."""

import codecs
import json
import os
import signal
import subprocess
import tempfile
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from site_agent.errors import TrainingDataError, TrainingFailedError
from site_agent.runs.progress import Progress
from site_agent.runs.workers import available_memory_bytes, start_python, stop
from site_agent.training.progress_lines import ProgressReader, split_lines
from site_agent.training.worker import EVENT_MARK

# Of the whole time, what reading the images takes; only for the progress bar.
_READING_SHARE = 0.03
_CHUNK_BYTES = 4096
_KEPT_LINES = 20
# Errors of reading an image, told as a fault of the data and not of the training.
_DATA_ERRORS = {"ImageFileError", "ValueError"}


def run_worker(
    job: dict[str, Any],
    reader: ProgressReader,
    *,
    progress: Progress | None = None,
    needed_memory_bytes: int,
    data_path: Path | None = None,
) -> dict[str, Any]:
    """Train in a child process.

    The child is killed when anything goes wrong here, be it Ctrl-C or an exception in `progress`,
    and (on Linux) when this process dies.

    `job`: what `site_agent.training.worker` does; ``folder`` is added: a temporary folder.
    `needed_memory_bytes`: estimate, for the message when the child is killed.

    Returns
    -------
    dict
        Facts that the worker reports.

    Raises
    ------
    TrainingDataError
        An image cannot be read.
    TrainingFailedError
        dlib refuses, crashes or is killed.
    """
    tell = progress or (lambda _fraction, _text: None)
    with tempfile.TemporaryDirectory(prefix="poolctl-training-") as folder:
        job_file = Path(folder) / "job.json"
        job_file.write_text(json.dumps({**job, "folder": folder}), encoding="utf-8")
        process = start_python("site_agent.training.worker", str(job_file))
        try:
            outcome = _follow(process, reader, tell)
        finally:
            stop(process)
    if "done" in outcome:
        return dict(outcome["done"])
    if outcome.get("type") in _DATA_ERRORS:
        raise TrainingDataError(data_path, [(0, outcome["error"])])
    raise TrainingFailedError(_failure_text(outcome, process.returncode, needed_memory_bytes))


def require_memory(needed_bytes: int, advice: str) -> None:
    """Refuse a training that would not fit, before any time is spent."""
    available = available_memory_bytes()
    if available is not None and needed_bytes > available:
        raise TrainingFailedError(
            f"this training needs about {needed_bytes / 1e9:.1f} GB of memory, and "
            f"{available / 1e9:.1f} GB are available; {advice}"
        )


def _follow(
    process: subprocess.Popen[bytes], reader: ProgressReader, tell: Progress
) -> dict[str, Any]:
    outcome: dict[str, Any] = {}
    printed: deque[str] = deque(maxlen=_KEPT_LINES)
    assert process.stdout is not None
    for line in split_lines(_pieces(process.stdout)):
        if line.startswith(EVENT_MARK):
            event = json.loads(line.removeprefix(EVENT_MARK))
            if "reading" in event:
                done, total = event["reading"], event["of"]
                tell(_READING_SHARE * done / total, f"reading image {done} of {total}")
            else:
                outcome = event
        elif step := reader(line):
            share = None if step.fraction is None else step.fraction * (1 - _READING_SHARE)
            tell(None if share is None else _READING_SHARE + share, step.text)
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
    if code < 0:
        name = signal.Signals(-code).name
        likely = (
            f"; most likely memory ran out: this training needs about "
            f"{needed_memory_bytes / 1e9:.1f} GB"
            if -code == signal.SIGKILL
            else ""
        )
        return f"the training process was ended by {name}{likely}"
    last = " / ".join(outcome.get("printed", [])[-3:])
    return f"the training process ended with code {code}: {last or 'it printed nothing'}"
