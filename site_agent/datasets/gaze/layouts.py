"""Recognising gaze data by its layout, and one door to all layouts."""

from __future__ import annotations

from pathlib import Path

from site_agent.datasets.gaze.generic_layout import COLUMNS, TABLE_NAME, find_table, open_folder
from site_agent.datasets.gaze.mpiigaze import find_days, open_mpiigaze
from site_agent.datasets.gaze.records import GazeDataset
from site_agent.errors import AnnotationFileError


def is_gaze_data(path: Path) -> bool:
    """Say whether a path holds eye patches with gaze, and no annotated faces."""
    return find_table(path) is not None or (path.is_dir() and find_days(path) is not None)


def open_gaze(path: Path) -> GazeDataset:
    """Open gaze data in any known layout.

    Raises
    ------
    AnnotationFileError
        The layout is not known, or the table is damaged.
    """
    table = find_table(path)
    if table is not None:
        return open_folder(table)
    if path.is_dir() and find_days(path) is not None:
        return open_mpiigaze(path)
    raise AnnotationFileError(
        path,
        0,
        f"is not gaze data; expected a folder with {TABLE_NAME} ({', '.join(COLUMNS)}), or "
        "MPIIGaze with Data/Normalized/p00/day01.mat ...",
    )
