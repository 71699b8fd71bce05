"""The sessions of a study: read back to compute them again."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from site_agent.datasets.trials import Trial
from site_agent.errors import StudyFolderError
from site_agent.eyeblink.batch.record import read_record
from site_agent.eyeblink.batch.sessions import settings_from_plain
from site_agent.eyeblink.conditioning import ConditioningSettings
from site_agent.eyeblink.session_folder import study_folders
from site_agent.eyeblink.session_reading import read_session
from site_agent.eyeblink.study.criteria import RecordedSession
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
        if without_trials:
            hint = (
                "give the batch the trials: a column trials in the table of sessions, or a file "
                "NAME_trials.csv next to the recording NAME"
            )
        elif without_number:
            hint = "give the sessions a session_number in the table of the batch"
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
