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
from site_agent.eyeblink.openness import Calibration, fraction_eyelid_closure
from site_agent.eyeblink.records import Float64
from site_agent.eyeblink.traces import read_trace


def read_session_signals(folder: Path) -> tuple[Float64, Float64]:
    """Return the timestamps in seconds and FEC of a session, shape (n,) both.

    Raises
    ------
    StudyFolderError
        The folder holds no session.
    TraceFileError
        Its ``frames.csv`` is damaged.
    """
    trace = read_trace(find_output(folder, "frames.csv"))
    return trace.timestamps_s, fraction_eyelid_closure(trace.ear, read_calibration(folder))


def read_calibration(folder: Path) -> Calibration:
    """Return the open and the closed level of a session.

    Raises
    ------
    StudyFolderError
    """
    path = find_output(folder, "provenance.json")
    try:
        found = json.loads(path.read_text(encoding="utf-8"))["calibration"]
        levels = [
            math.nan if found[name] is None else float(found[name])
            for name in ("open_ear", "closed_ear")
        ]
        return Calibration(levels[0], levels[1], bool(found["reliable"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StudyFolderError(f"{path}: has no calibration that can be read ({error})") from error


def find_output(folder: Path, name: str) -> Path:
    """Return the file that an output is: ``NAME``, or ``..._NAME`` in a folder of BIDS names.

    Raises
    ------
    StudyFolderError
        There is none, or several.
    """
    if (folder / name).is_file():
        return folder / name
    found = sorted(folder.rglob(f"*_{name}"))
    if len(found) != 1:
        raise StudyFolderError(
            f"{folder}: {f'{len(found)} files' if found else 'no file'} {name}; expected the "
            "results of one session, as poolctl blink writes them"
        )
    return found[0]
