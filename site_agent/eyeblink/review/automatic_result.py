"""The files of an analysis, read back for a review, which never changes them."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from aggregators.formats import file_digest
from site_agent.errors import ReviewFolderError, StudyFolderError
from site_agent.eyeblink import session_folder
from site_agent.eyeblink.records import FaceBox, Float64
from site_agent.eyeblink.review.replay import ReviewEvent

SIGNALS = ("ear", "ear_left", "ear_right", "fec", "fec_left", "fec_right", "confidence")
BOX = ("face_left_px", "face_top_px", "face_right_px", "face_bottom_px")
_NUMBERS = ("timestamp_s", *SIGNALS, *BOX)


@dataclass(frozen=True, eq=False)
class FrameColumns:
    """frames.csv: one entry a frame.

    Attributes
    ----------
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
    """What the analysis found; `rows` are those of blinks.csv by number, as they are written."""

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

    Raises
    ------
    ReviewFolderError
        A file is missing or damaged, or the folder holds several sessions.
    """
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


def find_output(place: Path | str, name: str) -> Path:
    """Return the file that an output of the session is (see `session_folder.find_output`)."""
    path = Path(place)
    if not path.exists():
        raise ReviewFolderError(f"{path}: no such folder; expected the results of poolctl blink")
    try:
        return session_folder.find_output(path, name)
    except StudyFolderError as error:
        raise ReviewFolderError(str(error)) from error


def _read_frames(path: Path) -> FrameColumns:
    import pandas

    try:
        table = pandas.read_csv(path, keep_default_na=False, na_values=[""])
        table = table.reindex(columns=[*_NUMBERS, "reason"])
        numbers = table[list(_NUMBERS)].astype(np.float64)
    except (OSError, ValueError) as error:
        raise ReviewFolderError(f"{path}: cannot be read: {error}") from error
    timestamps_s = numbers["timestamp_s"].to_numpy()
    if len(timestamps_s) == 0:
        raise ReviewFolderError(f"{path}: has no frames")
    if not np.isfinite(timestamps_s).all() or (np.diff(timestamps_s) <= 0).any():
        raise ReviewFolderError(f"{path}: the column timestamp_s does not increase throughout")
    codes, reasons = pandas.factorize(table["reason"])
    return FrameColumns(
        timestamps_s=timestamps_s,
        signals={name: numbers[name].to_numpy() for name in SIGNALS},
        boxes=numbers[list(BOX)].to_numpy(),
        gap_codes=(codes + 1).astype(np.uint8),
        gap_reasons=("", *map(str, reasons)),
    )


def _read_blinks(path: Path) -> tuple[tuple[str, ...], dict[int, dict[str, str]]]:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            rows = {int(row["blink_id"]): row for row in reader}
            return tuple(reader.fieldnames or ()), rows
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ReviewFolderError(f"{path}: cannot be read: {error}") from error


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
    except (ValueError, KeyError, TypeError) as error:
        raise ReviewFolderError(f"{path}, blink {row['blink_id']}: {error}") from error


def _read_provenance(path: Path) -> Mapping[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ReviewFolderError(f"{path}: cannot be read: {error}") from error
    return dict(content)


def model_address(place: Path | str, role: str) -> str | None:
    """Return the pool address of a model of an analysis, None where it came from a file."""
    provenance = _read_provenance(find_output(place, "provenance.json"))
    for source in provenance.get("sources", ()):
        if source.get("role") == role and source.get("address"):
            return str(source["address"])
    return None
