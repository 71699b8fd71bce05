"""Where the files of analysed sessions are."""

from __future__ import annotations

from pathlib import Path

from site_agent.errors import StudyFolderError
from site_agent.eyeblink.session_labels import BIDS_MARK

RECORD_NAME = "study.json"
"""In each folder of a study's session, see `study.record`."""
REVIEWED_FOLDER = "reviewed"
"""In a session's folder: its results with reviewed blinks."""

_MOST_SHOWN = 12


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
