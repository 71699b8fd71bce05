"""The sessions of a study: read back to compute them again, and gathered as a BIDS dataset."""

import contextlib
import json
import math
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from site_agent.datasets.trials import Trial
from site_agent.errors import StudyFolderError, writing_to
from site_agent.eyeblink.batch.record import SessionRecord, read_record
from site_agent.eyeblink.batch.sessions import settings_from_plain
from site_agent.eyeblink.conditioning import ConditioningSettings
from site_agent.eyeblink.outputs.bids import DESCRIPTION, IGNORE, README
from site_agent.eyeblink.session_folder import RECORD_NAME, study_folders
from site_agent.eyeblink.session_reading import read_session
from site_agent.eyeblink.study.criteria import RecordedSession
from site_agent.plain_json import write_json
from site_agent.wording import count_words


@dataclass(frozen=True)
class SessionFolder:
    """An analysed session with trials."""

    folder: Path
    participant: str
    number: float
    group: str
    trials: tuple[Trial, ...]
    settings: ConditioningSettings


@dataclass(frozen=True)
class StudySessions:
    """Sessions to compute again; iterating holds the signals of one session at a time."""

    sessions: tuple[SessionFolder, ...]
    settings: ConditioningSettings
    remarks: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.sessions)

    def __iter__(self) -> Iterator[RecordedSession]:
        for session in self.sessions:
            analysed = read_session(session.folder)
            signals = (analysed.trace.timestamps_s, analysed.fec())
            yield RecordedSession(
                session.participant, session.number, *signals, session.trials, session.group
            )


def read_study(places: Sequence[Path | str]) -> StudySessions:
    """Find the sessions with trials and a number of studies of ``poolctl blink batch``."""
    folders: list[SessionFolder] = []
    without_trials = without_number = 0
    for place in map(Path, places):
        if not place.is_dir():
            raise StudyFolderError(f"{place}: no such folder; expected a study")
        for folder in study_folders(place):
            record = read_record(folder)
            if not record.trials:
                without_trials += 1
            elif math.isnan(record.number):
                without_number += 1
            else:
                settings = _conditioning(folder, record.request.settings)
                labels = (record.participant, record.number, record.group)
                folders.append(SessionFolder(folder, *labels, record.trials, settings))
    remarks = []
    if without_trials:
        remarks.append(f"{count_words(without_trials, 'session')} without trials left out")
    if without_number:
        remarks.append(f"{count_words(without_number, 'session')} without session_number left out")
    if not folders:
        listed = ", ".join(str(place) for place in places)
        hint = "expected a study of poolctl blink batch"
        raise StudyFolderError("; ".join([f"{listed}: no session to compare", *remarks, hint]))
    if len({session.settings for session in folders}) > 1:
        remarks.append(
            "the sessions were analysed with different conditioning settings; those of "
            f"{folders[0].folder.name} are taken as the study's own"
        )
    return StudySessions(tuple(folders), folders[0].settings, tuple(remarks))


def _conditioning(folder: Path, settings: Mapping[str, Any]) -> ConditioningSettings:
    try:
        return settings_from_plain(ConditioningSettings(), settings.get("conditioning", {}))
    except (ValueError, TypeError, AttributeError) as error:
        raise StudyFolderError(f"{folder}: its conditioning settings cannot be read") from error


FOLDER_NAME = "bids"
_MANIFEST = Path(".batch") / "bids.json"
_DATASET_FILES = (DESCRIPTION, README, IGNORE)


def gather_bids(study: Path, records: Sequence[SessionRecord]) -> Path | None:
    """Bring the files of all sessions with BIDS names together in ``STUDY/bids``.

    They are links to the sessions' own files where the file system has them, so that they take no
    room. Files that others put there (reviews, other derivatives) stay; files of sessions that the
    study no longer has go. Returns None where no session has BIDS names.
    """
    folder = study / FOLDER_NAME
    targets: dict[str, Path] = {}
    for record in records:
        for name in record.files:
            if not PurePosixPath(name).parts[0].startswith("sub-"):
                continue
            if name in targets:
                raise StudyFolderError(
                    f"{record.name}: another session has the same BIDS subject, session and task; "
                    "give one of them another session_number"
                )
            targets[name] = study / record.name / name
    known = _read_manifest(study)
    if not targets and not known:
        return None
    if (folder / RECORD_NAME).exists():
        raise StudyFolderError(f"{folder}: is the folder of a session; name the session otherwise")
    with writing_to(folder, StudyFolderError):
        for name in sorted(known - targets.keys()):
            _remove(folder, name)
        for name, source in targets.items():
            _link(source, folder / name)
        for name in _DATASET_FILES:
            sources = (study / record.name / name for record in records)
            original = next((path for path in sources if path.is_file()), None)
            if targets and original is not None and not (folder / name).exists():
                shutil.copy2(original, folder / name)
        (study / _MANIFEST).parent.mkdir(parents=True, exist_ok=True)
        write_json(study / _MANIFEST, sorted(targets))
    return folder if targets else None


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
