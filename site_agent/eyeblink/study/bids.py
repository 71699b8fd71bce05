"""The sessions of a study with BIDS names as one dataset."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from site_agent.errors import StudyFolderError
from site_agent.eyeblink.outputs.bids import DESCRIPTION, IGNORE, README
from site_agent.eyeblink.session_folder import RECORD_NAME
from site_agent.eyeblink.study.record import SessionRecord

FOLDER_NAME = "bids"
_MANIFEST = Path(".batch") / "bids.json"
_DATASET_FILES = (DESCRIPTION, README, IGNORE)


def gather_bids(study: Path, records: Sequence[SessionRecord]) -> Path | None:
    """Bring the files of all sessions with BIDS names together in ``STUDY/bids``.

    They are links to the sessions' own files where the file system has them, so that they take
    no room. What others put there (reviews, other derivatives) stays; files of sessions that the
    study no longer has go. Returns None where no session has BIDS names.

    Raises
    ------
    StudyFolderError
        The folder cannot be written, or two sessions have the same names.
    """
    folder = study / FOLDER_NAME
    wanted: dict[str, Path] = {}
    for record in records:
        for name in record.files:
            if not PurePosixPath(name).parts[0].startswith("sub-"):
                continue
            if name in wanted:
                raise StudyFolderError(
                    f"{record.name}: another session has the same BIDS subject, session and task; "
                    "give one of them another session_number"
                )
            wanted[name] = study / record.name / name
    known = _read_manifest(study)
    if not wanted and not known:
        return None
    if (folder / RECORD_NAME).exists():
        raise StudyFolderError(f"{folder}: is the folder of a session; name the session otherwise")
    try:
        for name in sorted(known - wanted.keys()):
            _remove(folder, name)
        for name, source in wanted.items():
            _link(source, folder / name)
        for name in _DATASET_FILES:
            sources = (study / record.name / name for record in records)
            found = next((path for path in sources if path.is_file()), None)
            if wanted and found is not None and not (folder / name).exists():
                shutil.copy2(found, folder / name)
        text = json.dumps(sorted(wanted), indent=0)
        (study / _MANIFEST).parent.mkdir(parents=True, exist_ok=True)
        (study / _MANIFEST).write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise StudyFolderError(
            f"{error.filename or folder}: cannot be written: {error.strerror or error}"
        ) from error
    return folder if wanted else None


def _read_manifest(study: Path) -> set[str]:
    with contextlib.suppress(OSError, ValueError):
        return set(json.loads((study / _MANIFEST).read_text(encoding="utf-8")))
    return set()


def _link(source: Path, target: Path) -> None:
    if target.exists() and target.samefile(source):
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.partial")
    temporary.unlink(missing_ok=True)
    try:
        os.link(source, temporary)
    except OSError:  # another file system, or one without links
        shutil.copy2(source, temporary)
    temporary.replace(target)


def _remove(folder: Path, name: str) -> None:
    path = folder / name
    path.unlink(missing_ok=True)
    for above in path.parents:
        if above == folder:
            return
        with contextlib.suppress(OSError):  # others have something there
            above.rmdir()
