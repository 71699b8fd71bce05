"""corrections.jsonl: who did what and when, one line each; lines are only added.

The first line names the automatic result that the corrections belong to::

    {"schema": "poolctl-blink-review/1", "blinks_sha256": "...", "created_utc": "..."}
    {"number": 1, "utc": "...", "reviewer": "...", "action": {"action": "accept", "blink_id": 3}}

An action is on disk before it is confirmed. A last line without its end is what a killed process
left, was never confirmed, and is removed.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from site_agent.errors import BusyError, ReviewFolderError, ReviewOutdatedError
from site_agent.eyeblink.review.actions import Action
from site_agent.runs.files import locked

SCHEMA: Literal["poolctl-blink-review/1"] = "poolctl-blink-review/1"
LOG_NAME = "corrections.jsonl"


class LogHeader(BaseModel):
    """The first line."""

    model_config = ConfigDict(frozen=True, populate_by_name=True)

    schema_name: Literal["poolctl-blink-review/1"] = Field(alias="schema")
    blinks_sha256: str
    created_utc: str


class LogEntry(BaseModel):
    """One action: `number` counts from 1 without gaps, `utc` is ISO 8601."""

    model_config = ConfigDict(frozen=True)

    number: int
    utc: str
    reviewer: str
    action: Action


@dataclass(frozen=True)
class LogContent:
    """The content of a log: `whole_bytes` is where its last complete line ends."""

    header: LogHeader | None
    entries: tuple[LogEntry, ...]
    whole_bytes: int


def read_log(path: Path) -> LogContent:
    """Read a log, as far as its lines are complete."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return LogContent(None, (), 0)
    except OSError as error:
        raise ReviewFolderError(f"{path}: {error.strerror or error}") from error
    whole_bytes = data.rfind(b"\n") + 1
    lines = data[:whole_bytes].splitlines()
    if not lines:
        return LogContent(None, (), 0)
    header = _parse_header(path, lines[0])
    entries = tuple(_parse_entry(path, number, line) for number, line in enumerate(lines[1:], 1))
    return LogContent(header, entries, whole_bytes)


def _parse_header(path: Path, line: bytes) -> LogHeader:
    try:
        return LogHeader.model_validate_json(line)
    except ValidationError as error:
        raise ReviewFolderError(f"{path}, line 1: is not the header of a review log") from error


def _parse_entry(path: Path, number: int, line: bytes) -> LogEntry:
    try:
        return LogEntry.model_validate_json(line)
    except ValidationError as error:
        problem = error.errors()[0]["msg"]
        raise ReviewFolderError(f"{path}, line {number + 1}: is damaged ({problem})") from error


class CorrectionLog:
    """The log of one result, open for writing by one process at a time.

    Raises
    ------
    BusyError
        Another process has it open.
    ReviewOutdatedError
        Its corrections belong to another automatic result.
    ReviewFolderError
        It is damaged, or the folder cannot be written.
    """

    def __init__(self, folder: Path, blinks_sha256: str) -> None:
        self.path = folder / LOG_NAME
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        except OSError as error:
            raise ReviewFolderError(f"{self.path}: {error.strerror or error}") from error
        with ExitStack() as opened:
            opened.callback(os.close, self._file)
            opened.enter_context(locked(self.path, busy=_busy(self.path)))
            self.entries = self._begin(blinks_sha256)
            self._opened = opened.pop_all()

    def __enter__(self) -> CorrectionLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._opened.close()

    def append(self, action: Action, reviewer: str) -> LogEntry:
        """Add an action; it is on the disk when this returns."""
        entry = LogEntry(number=len(self.entries) + 1, utc=_now(), reviewer=reviewer, action=action)
        self._write(entry.model_dump_json(exclude_none=True))
        self.entries = (*self.entries, entry)
        return entry

    def _begin(self, blinks_sha256: str) -> tuple[LogEntry, ...]:
        content = read_log(self.path)
        if content.header is None:
            # New, or left by a process that was killed in the middle of the first line.
            os.ftruncate(self._file, 0)
            header = LogHeader(schema=SCHEMA, blinks_sha256=blinks_sha256, created_utc=_now())
            self._write(header.model_dump_json(by_alias=True))
            return ()
        if content.header.blinks_sha256 != blinks_sha256:
            raise ReviewOutdatedError(
                f"{self.path}: these {len(content.entries)} corrections were made to another "
                f"result (blinks.csv was {content.header.blinks_sha256[:12]}..., "
                f"is {blinks_sha256[:12]}... now): the analysis was run again since. Repeat it "
                "with the old settings, or start over with --start-over, which keeps the old "
                "corrections in a folder of their own"
            )
        os.ftruncate(self._file, content.whole_bytes)
        return content.entries

    def _write(self, line: str) -> None:
        data = line.encode() + b"\n"
        size = os.fstat(self._file).st_size
        try:
            written = os.write(self._file, data)
            if written != len(data):
                raise OSError("the disk is full")
            os.fsync(self._file)
        except OSError as error:
            os.ftruncate(self._file, size)
            raise ReviewFolderError(
                f"{self.path}: cannot be written: {error.strerror or error}"
            ) from error


def set_aside(folder: Path) -> Path | None:
    """Rename the folder of earlier corrections, to ``review-1``, ``review-2`` ...; return it."""
    path = folder / LOG_NAME
    if not path.exists():
        return None
    number = 1
    while folder.with_name(f"{folder.name}-{number}").exists():
        number += 1
    try:
        with locked(path, busy=_busy(path)):
            return folder.rename(folder.with_name(f"{folder.name}-{number}"))
    except OSError as error:
        raise ReviewFolderError(f"{folder}: cannot be renamed: {error.strerror}") from error


def _busy(path: Path) -> BusyError:
    return BusyError(f"{path}: another process has this review open; end that one first")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
