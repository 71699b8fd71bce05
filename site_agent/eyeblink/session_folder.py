"""The files of analysed sessions, and the labels that a user gives to a recording."""

import re
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from aggregators.formats import file_digest
from site_agent.errors import InvalidInputError, StudyFolderError
from site_agent.settings import Settings

RECORD_NAME = "study.json"
"""In each folder of a study's session, see `study.record`."""
REVIEW_FOLDER = "review"
"""In a session's folder: the log of its review, and the blinks as reviewed."""
REVIEWED_FOLDER = "reviewed"
"""In a session's folder: its results with reviewed blinks."""

_MOST_SHOWN = 12


def find_output(place: Path, name: str) -> Path:
    """Return the path of a session's output."""
    if place.is_file():
        path = place.with_name(name)
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
    """Return the path of an output of every session in a folder: of one session, or of a study."""
    if (folder / name).is_file():
        return [folder / name]
    if studied := study_folders(folder):
        return [path for session in studied for path in find_outputs(session, name)]
    return []


def study_folders(study: Path) -> list[Path]:
    """Return the folders of a study's sessions; none where it is not a study."""
    return [path.parent for path in sorted(study.glob(f"*/{RECORD_NAME}"))]


_AGE = r"P(\d+(\.\d+)?Y)?(\d+(\.\d+)?M)?(\d+(\.\d+)?W)?(\d+(\.\d+)?D)?(?<!P)"
_SEXES = {"female": "F", "male": "M", "other": "O", "unknown": "U"}


class SessionLabels(Settings, error=InvalidInputError):
    """Labels of a recording."""

    subject: str = ""
    session: str = ""
    start: datetime | None = None
    """When the recording began."""
    age: str = ""
    """Of the subject, for NWB: a duration of ISO 8601 such as P21Y."""
    sex: str = "U"
    """Of the subject, for NWB: F, M, O or U (unknown)."""

    def __post_init__(self) -> None:
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
