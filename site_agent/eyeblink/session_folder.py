"""The files of analysed sessions, and the labels that a user gives to a recording."""

import re
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any

from pydantic import Field

from aggregators.formats import file_digest
from site_agent.errors import InvalidInputError, StudyFolderError
from site_agent.settings import Settings

RECORD_NAME = "study.json"
"""In each folder of a study's session, see `study.record`."""
REVIEWED_FOLDER = "reviewed"
"""In a session's folder: its results with reviewed blinks."""

_MOST_SHOWN = 12


def find_output(place: Path, name: str) -> Path:
    """Return the path of a session's output: ``NAME``, or ``..._NAME`` under BIDS names."""
    if place.is_file():
        path = place.with_name(f"{name_prefix(place)}{name}")
        if path.is_file():
            return path
        raise StudyFolderError(
            f"{place}: there is no {path.name} next to it; expected the results of one session, as "
            "poolctl blink writes them"
        )
    outputs = find_outputs(place, name)
    if len(outputs) == 1:
        return outputs[0]
    if outputs:
        shown = ", ".join(str(path) for path in outputs[:_MOST_SHOWN])
        raise StudyFolderError(f"{place}: holds {len(outputs)} sessions; name one of them: {shown}")
    raise StudyFolderError(
        f"{place}: has no {name}; expected the results of one session, as poolctl blink writes them"
    )


def find_outputs(folder: Path, name: str) -> list[Path]:
    """Return the path of an output of every session in a folder, sorted by name.

    A study has one for each of its sessions, although those with BIDS names are also in its folder
    ``bids``. Otherwise, below the folder itself only BIDS names count: files with plain names
    there belong to another folder's session.
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
    """Return the common prefix of a session's file names; empty for plain names."""
    entities, mark, _ = path.name.rpartition(BIDS_MARK)
    return f"{entities}{mark}"


_AGE = r"P(\d+(\.\d+)?Y)?(\d+(\.\d+)?M)?(\d+(\.\d+)?W)?(\d+(\.\d+)?D)?(?<!P)"
_SEXES = {"female": "F", "male": "M", "other": "O", "unknown": "U"}

BIDS_MARK = "_desc-blink_"
"""Between the entities of a BIDS name and the plain name of the file."""


def _label() -> Any:
    text = "Letters and digits, as BIDS wants them; a leading sub-, ses- or task- is taken off."
    return Field(default="", description=f"{text} Empty where not given.")


class SessionLabels(Settings, error=InvalidInputError):
    """Labels of a recording."""

    subject: str = _label()
    """Without it the files have plain names."""
    session: str = _label()
    task: str = _label()
    start: datetime | None = None
    """When the recording began."""
    age: str = ""
    """Of the subject, for NWB: a duration of ISO 8601 such as P21Y."""
    sex: str = "U"
    """Of the subject, for NWB: F, M, O or U (unknown)."""

    def __post_init__(self) -> None:
        for name, entity in (("subject", "sub-"), ("session", "ses-"), ("task", "task-")):
            label = getattr(self, name).removeprefix(entity)
            if label and not re.fullmatch("[0-9A-Za-z]+", label):
                raise InvalidInputError(
                    f"the {name} label {label!r} has other characters than letters and digits; "
                    "file names of the BIDS standard allow these only"
                )
            object.__setattr__(self, name, label)
        if (self.session or self.task) and not self.subject:
            kind = "session" if self.session else "task"
            raise InvalidInputError(f"a {kind} label without a subject: give the subject, too")
        if self.age and not re.fullmatch(_AGE, self.age):
            raise InvalidInputError(
                f"the age {self.age!r} is not an ISO 8601 duration such as P21Y"
            )
        sex = _SEXES.get(self.sex.lower(), self.sex.upper())
        if sex not in _SEXES.values():
            raise InvalidInputError(
                f"the sex {self.sex!r}: expected F, M, O or U, or female, male, other or unknown"
            )
        object.__setattr__(self, "sex", sex)

    def names(self, *, has_trials: bool) -> "SessionNames":
        """Return how the session's files are called.

        The task is ``ebc`` (eyeblink conditioning) where trials are given, ``blink`` otherwise,
        unless it has a label.
        """
        if not self.subject:
            return SessionNames(PurePosixPath(), "", "")
        task = self.task or ("ebc" if has_trials else "blink")
        entities = [f"sub-{self.subject}"]
        folder = PurePosixPath(f"sub-{self.subject}")
        if self.session:
            entities.append(f"ses-{self.session}")
            folder /= f"ses-{self.session}"
        return SessionNames(folder / "beh", "_".join([*entities, f"task-{task}"]), task)


@dataclass(frozen=True)
class SessionNames:
    """The names of a session's files in its output folder."""

    folder: PurePosixPath
    entities: str
    """Such as ``sub-01_ses-01_task-ebc``; empty for plain names."""
    task: str

    @property
    def is_bids(self) -> bool:
        return bool(self.entities)

    def path(self, file_name: str) -> PurePosixPath:
        """Return the path of an output that is called `file_name` in a plain folder."""
        prefix = f"{self.entities}{BIDS_MARK}" if self.entities else ""
        return self.folder / f"{prefix}{file_name}"

    def bids_path(self, suffix: str) -> PurePosixPath:
        """Return the path of a file that the BIDS standard has a suffix for."""
        return self.folder / f"{self.entities}_{suffix}"


@dataclass(frozen=True)
class SourceFile:
    """A file that went into an analysis.

    The name is without the folder: paths often hold names of persons. A source that is no file
    (dlib's stock detector) has no digest; a model of a pool has an address.
    """

    role: str
    name: str
    sha256: str | None
    address: str | None = None


def source_file(role: str, path: Path, address: str | None = None) -> SourceFile:
    """Describe a file by its name and digest."""
    return SourceFile(role, path.name, file_digest(path), address)


@dataclass(frozen=True)
class RecordingStart:
    """The start of a recording, and how it is known."""

    time: datetime
    known_from: str
