"""The signals of an analysed session, read back from its folder.

``frames.csv`` holds times to the microsecond and EAR to 1e-6, ``provenance.json`` the calibration
to the last bit, and the analysis worked on just these numbers (`records.as_written`). FEC that is
computed from them anew is therefore the analysis' own, to the last bit.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

from site_agent.errors import StudyFolderError
from site_agent.eyeblink.openness.signal import Calibration, fraction_eyelid_closure
from site_agent.eyeblink.openness.traces import read_trace
from site_agent.eyeblink.records import Float64
from site_agent.eyeblink.session_labels import BIDS_MARK

RECORD_NAME = "study.json"
"""In each folder of a study's session, see `study.record`."""
REVIEWED_FOLDER = "reviewed"
"""In a session's folder: its results with reviewed blinks."""

_MOST_SHOWN = 12


def read_session_signals(place: Path) -> tuple[Float64, Float64]:
    """Return the timestamps in seconds and FEC of a session, shape (n,) both.

    `place` is its folder or one of its files, see `find_output`.

    Raises
    ------
    StudyFolderError
        The folder holds no session.
    TableFileError
        Its ``frames.csv`` is damaged.
    """
    trace = read_trace(find_output(place, "frames.csv"))
    return trace.timestamps_s, fraction_eyelid_closure(trace.ear, read_calibration(place))


def read_calibration(place: Path) -> Calibration:
    """Return the open and the closed level of a session.

    Raises
    ------
    StudyFolderError
    """
    path = find_output(place, "provenance.json")
    try:
        found = json.loads(path.read_text(encoding="utf-8"))["calibration"]
        levels = [
            math.nan if found[name] is None else float(found[name])
            for name in ("open_ear", "closed_ear")
        ]
        return Calibration(levels[0], levels[1], bool(found["reliable"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StudyFolderError(f"{path}: has no calibration that can be read ({error})") from error


def find_output(place: Path, name: str) -> Path:
    """Return the file that an output is: ``NAME``, or ``..._NAME`` in a folder of BIDS names.

    Parameters
    ----------
    place : Path
        The folder of one session, however deep BIDS names put its files; or one of its files,
        which tells the session where a folder holds several.
    name : str
        What the output is called in a plain folder: ``frames.csv``.

    Raises
    ------
    StudyFolderError
        There is none, or several; the message lists them.
    """
    if place.is_file():
        path = place.with_name(f"{name_prefix(place)}{name}")
        if path.is_file():
            return path
        raise StudyFolderError(
            f"{place}: there is no {path.name} beside it; expected the results of one session, as "
            "poolctl blink writes them"
        )
    found = find_outputs(place, name)
    if len(found) == 1:
        return found[0]
    if found:
        shown = ", ".join(str(path) for path in found[:_MOST_SHOWN])
        raise StudyFolderError(f"{place}: holds {len(found)} sessions; name one of them: {shown}")
    raise StudyFolderError(
        f"{place}: has no {name}; expected the results of one session, as poolctl blink writes them"
    )


def find_outputs(folder: Path, name: str) -> list[Path]:
    """Return the file that an output is of every session in a folder, in the order of names.

    A study has one for each of its sessions, although those with BIDS names are also in its folder
    ``bids``. Otherwise, below the folder itself only BIDS names count: what lies there under plain
    names is another folder's session.
    """
    if (folder / name).is_file():
        return [folder / name]
    if studied := study_folders(folder):
        return [path for session in studied for path in find_outputs(session, name)]
    return sorted(
        path
        for path in folder.rglob(f"*{BIDS_MARK}{name}")
        if path.is_file()
        and not any(
            part.startswith(".") or part == REVIEWED_FOLDER
            for part in path.relative_to(folder).parts
        )
    )


def study_folders(study: Path) -> list[Path]:
    """Return the folders of a study's sessions; none where it is not a study."""
    return [path.parent for path in sorted(study.glob(f"*/{RECORD_NAME}"))]


def name_prefix(path: Path) -> str:
    """Return what the names of a session's files begin with; empty for plain names."""
    entities, mark, _ = path.name.rpartition(BIDS_MARK)
    return f"{entities}{mark}"
