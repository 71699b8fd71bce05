"""Descriptions of folders and tables without known data: their contents, and the expected ones."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from site_agent.datasets import egocentric
from site_agent.datasets.gaze.generic_layout import COLUMNS, TABLE_NAME, lacking_columns
from site_agent.errors import TableFileError
from site_agent.pictures.images import is_clutter
from site_agent.text_tables import header_of

CLIP_COLUMNS = ("clip", "file", "person", "split")
CLIP_GAZE_COLUMNS = ("clip", "frame", "x", "y", "kind")
_SHOWN = 5


def describe_unknown(path: Path) -> str:
    """Describe the contents of a folder or a table without known data, and the expected ones."""
    remarks = [*_missing_columns(path), *_named_annotations(path)]
    return "; ".join([_contents(path), *remarks, _EXPECTED])


_EXPECTED = (
    "expected faces (imglab XML or COCO JSON, named as a file, or .pts files next to their "
    f"images), gaze ({TABLE_NAME} with the columns {', '.join(COLUMNS)}) or clips "
    f"({egocentric.CLIPS_TABLE}: {', '.join(CLIP_COLUMNS)}; {TABLE_NAME}: "
    f"{', '.join(CLIP_GAZE_COLUMNS)}), or MPIIGaze, MPIIFaceGaze (normalised), "
    "GazeCapture, NVGaze, LPW"
)


def _contents(path: Path) -> str:
    if not path.is_dir():
        shown = ", ".join(name[:20] for name in _header(path)[:_SHOWN])
        return f"holds the columns {shown or 'of no table'}"
    files = [entry for entry in path.iterdir() if not is_clutter(entry.name)]
    endings = Counter(
        "folder" if entry.is_dir() else entry.suffix.lower() or "without an ending"
        for entry in files
    )
    listed = ", ".join(f"{count} {name}" for name, count in endings.most_common(_SHOWN))
    return f"holds no data set that is known, but {listed or 'nothing'}"


def _missing_columns(path: Path) -> list[str]:
    """Return the columns that are missing in tables named like those of gaze or clips."""
    clips = path / egocentric.CLIPS_TABLE
    known: list[tuple[Path, Sequence[str]]] = [(path / TABLE_NAME, COLUMNS)]
    if path.is_file():
        known = [(path, COLUMNS)]
    elif clips.is_file():
        known = [(clips, CLIP_COLUMNS), (path / TABLE_NAME, CLIP_GAZE_COLUMNS)]
    return [
        f"{table.name} lacks {', '.join(lacking)}"
        for table, columns in known
        if (lacking := lacking_columns(table, columns))
    ]


def _named_annotations(path: Path) -> list[str]:
    names = sorted(
        entry for ending in ("xml", "json") for entry in path.glob(f"*.{ending}") if entry.is_file()
    )
    return [f"name its file of annotations: {names[0]}"] if names else []


def _header(table: Path) -> list[str]:
    try:
        return header_of(table)
    except TableFileError:
        return []
