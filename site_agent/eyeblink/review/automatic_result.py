"""The files of an analysis, read back for a review; nothing here ever writes to them."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from aggregators.formats import file_digest
from site_agent.errors import ReviewFolderError, StudyFolderError
from site_agent.eyeblink import session_folder
from site_agent.eyeblink.records import FaceBox, Float64
from site_agent.eyeblink.review.replay import ReviewEvent

SIGNALS = ("ear", "ear_left", "ear_right", "fec", "fec_left", "fec_right", "confidence")
BOX = ("face_left_px", "face_top_px", "face_right_px", "face_bottom_px")
_NUMBERS = ("timestamp_s", *SIGNALS, *BOX)
_EVENT_COLUMNS = ("blink_id", "kind", "onset_s", "peak_s", "offset_s", "completeness")


@dataclass(frozen=True, eq=False)
class FrameColumns:
    """frames.csv: one entry a frame.

    Attributes
    ----------
    timestamps_s : float64, shape (n,)
    signals : mapping of str to float64, shape (n,)
        The columns `SIGNALS`; NaN where empty.
    boxes : float64, shape (n, 4)
        Face boxes in pixels, NaN where there is none.
    gap_codes : uint8, shape (n,)
        Index into `gap_reasons`; 0 where the eyes were seen.
    """

    timestamps_s: Float64
    signals: Mapping[str, Float64]
    boxes: Float64
    gap_codes: np.typing.NDArray[np.uint8]
    gap_reasons: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.timestamps_s)

    def nearest(self, time_s: float) -> int:
        """Return the frame whose time is nearest."""
        after = int(np.searchsorted(self.timestamps_s, time_s))
        if after == 0:
            return 0
        if after == len(self):
            return after - 1
        before_s, after_s = self.timestamps_s[after - 1], self.timestamps_s[after]
        return after - 1 if time_s - before_s <= after_s - time_s else after

    def box(self, frame: int) -> FaceBox | None:
        corners = self.boxes[frame]
        return FaceBox(*map(float, corners)) if np.isfinite(corners).all() else None


@dataclass(frozen=True, eq=False)
class AutomaticResult:
    """What the analysis found.

    Attributes
    ----------
    folder : Path
        Where its files lie.
    prefix : str
        What their names begin with; empty for plain names.
    rows : mapping of int to (mapping of str to str)
        The rows of blinks.csv by number, as they are written there.
    columns : tuple of str
        Of blinks.csv.
    blinks_sha256 : str
    """

    folder: Path
    prefix: str
    frames: FrameColumns
    events: tuple[ReviewEvent, ...]
    rows: Mapping[int, Mapping[str, str]]
    columns: tuple[str, ...]
    blinks_sha256: str
    provenance: Mapping[str, Any]

    def source(self, role: str) -> Mapping[str, Any] | None:
        """Return what the provenance says of the video, the trace or a model."""
        sources = self.provenance.get("sources", ())
        return next((entry for entry in sources if entry.get("role") == role), None)

    def blink_setting(self, name: str, default: float) -> float:
        settings = self.provenance.get("settings", {}).get("blinks", {})
        value = settings.get(name, default)
        return float(value) if isinstance(value, int | float) else default


def read_automatic_result(place: Path | str) -> AutomaticResult:
    """Read what ``poolctl blink`` has left in a folder.

    Parameters
    ----------
    place : path
        The folder that was given to it, or one of the session's files.

    Raises
    ------
    ReviewFolderError
        Which file is missing or damaged, and where; or which sessions the folder holds.
    """
    place = _existing(place)
    blinks_file = find_output(place, "blinks.csv")
    frames = _read_frames(find_output(blinks_file, "frames.csv"))
    columns, rows = _read_blinks(blinks_file)
    return AutomaticResult(
        folder=blinks_file.parent,
        prefix=session_folder.name_prefix(blinks_file),
        frames=frames,
        events=tuple(_event(blinks_file, row) for row in rows.values()),
        rows=rows,
        columns=columns,
        blinks_sha256=file_digest(blinks_file),
        provenance=_read_provenance(find_output(blinks_file, "provenance.json")),
    )


def _existing(place: Path | str) -> Path:
    path = Path(place)
    if not path.exists():
        raise ReviewFolderError(f"{path}: no such folder; expected the results of poolctl blink")
    return path


def find_output(place: Path, name: str) -> Path:
    """Return the file that an output of the session is (see `session_folder.find_output`).

    Raises
    ------
    ReviewFolderError
        There is none, or there are several sessions.
    """
    try:
        return session_folder.find_output(place, name)
    except StudyFolderError as error:
        raise ReviewFolderError(str(error)) from error


def _read_frames(path: Path) -> FrameColumns:
    with _open(path) as file:
        header, _, body = file.read().partition("\n")
    names = header.strip().split(",")
    places = _places(path, names, ("timestamp_s", "ear"))
    if not body.strip():
        raise ReviewFolderError(f"{path}: has no frames")
    numbers = [name for name in _NUMBERS if name in places]
    texts = ["reason"] if "reason" in places else []
    # numpy's reader takes a fraction of the csv module's time, but wants no empty cells.
    filled = body.replace(",,", ",nan,").replace(",,", ",nan,").replace(",\n", ",nan\n")
    try:
        table = np.loadtxt(
            io.StringIO(filled),
            dtype=[*((name, np.float64) for name in numbers), *((name, "U32") for name in texts)],
            delimiter=",",
            comments=None,
            quotechar='"',
            usecols=[places[name] for name in (*numbers, *texts)],
            ndmin=1,
        )
    except ValueError as error:
        raise ReviewFolderError(f"{path}: {error}; rows are counted below the header") from error
    absent = np.full(len(table), np.nan)
    columns = {
        name: np.ascontiguousarray(table[name]) if name in places else absent for name in _NUMBERS
    }
    timestamps_s = columns["timestamp_s"]
    if not np.isfinite(timestamps_s).all() or (np.diff(timestamps_s) <= 0).any():
        raise ReviewFolderError(f"{path}: the column timestamp_s does not increase throughout")
    codes, reasons = _gap_codes(table["reason"] if texts else np.full(len(table), "nan"))
    return FrameColumns(
        timestamps_s=timestamps_s,
        signals={name: columns[name] for name in SIGNALS},
        boxes=np.stack([columns[name] for name in BOX], axis=1),
        gap_codes=codes,
        gap_reasons=reasons,
    )


def _gap_codes(
    texts: np.typing.NDArray[np.str_],
) -> tuple[np.typing.NDArray[np.uint8], tuple[str, ...]]:
    """Return a code for each text and the texts by code; 0 where the cell was empty."""
    codes = np.zeros(len(texts), dtype=np.uint8)
    reasons = [""]
    given = texts != "nan"
    for text in np.unique(texts[given])[:255].tolist():
        codes[texts == text] = len(reasons)
        reasons.append(str(text))
    return codes, tuple(reasons)


def _read_blinks(path: Path) -> tuple[tuple[str, ...], dict[int, dict[str, str]]]:
    rows: dict[int, dict[str, str]] = {}
    with _open(path) as file:
        reader = csv.DictReader(file, strict=True)
        columns = tuple(reader.fieldnames or ())
        _places(path, columns, _EVENT_COLUMNS)
        for row in reader:
            try:
                number = int(row["blink_id"])
            except (TypeError, ValueError):
                raise ReviewFolderError(
                    f"{path}, line {reader.line_num}: blink_id is {row['blink_id']!r}, no number"
                ) from None
            if number in rows or None in row or None in row.values():
                raise ReviewFolderError(
                    f"{path}, line {reader.line_num}: is a second blink {number}, or has not as "
                    "many cells as the header"
                )
            rows[number] = row
    return columns, rows


def _event(path: Path, row: Mapping[str, str]) -> ReviewEvent:
    try:
        return ReviewEvent(
            blink_id=int(row["blink_id"]),
            kind="closure" if row["kind"] == "closure" else "blink",
            onset_s=float(row["onset_s"]),
            peak_s=float(row["peak_s"]),
            offset_s=float(row["offset_s"]),
            completeness="partial" if row["completeness"] == "partial" else "complete",
        )
    except ValueError as error:
        raise ReviewFolderError(f"{path}, blink {row['blink_id']}: {error}") from error


def _read_provenance(path: Path) -> Mapping[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ReviewFolderError(f"{path}: cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise ReviewFolderError(f"{path}: is no provenance of an analysis")
    return content


@contextmanager
def _open(path: Path) -> Iterator[TextIO]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            yield file
    except UnicodeDecodeError as error:
        raise ReviewFolderError(f"{path}: byte {error.start} is no text") from error
    except csv.Error as error:
        raise ReviewFolderError(f"{path}: is no table: {error}") from error
    except OSError as error:
        raise ReviewFolderError(f"{path}: {error.strerror or error}") from error


def _places(path: Path, header: Sequence[str], needed: Sequence[str]) -> dict[str, int]:
    missing = [name for name in needed if name not in header]
    if missing:
        raise ReviewFolderError(f"{path}: has no column {', '.join(missing)}")
    return {name: place for place, name in enumerate(header)}


def model_address(place: Path | str, role: str) -> str | None:
    """Return the pool address of a model of an analysis, None where it came from a file.

    Raises
    ------
    ReviewFolderError
        The folder has no provenance, or holds several sessions.
    """
    provenance = _read_provenance(find_output(_existing(place), "provenance.json"))
    for source in provenance.get("sources", ()):
        if source.get("role") == role and source.get("address"):
            return str(source["address"])
    return None
