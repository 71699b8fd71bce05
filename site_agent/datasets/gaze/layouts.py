"""The table of layouts of gaze data, and one door to all of them."""

from pathlib import Path

from site_agent.datasets.gaze.generic_layout import GENERIC
from site_agent.datasets.gaze.mpiigaze import MPIIGAZE
from site_agent.datasets.gaze.records import GazeDataset, GazeLayout
from site_agent.errors import AnnotationFileError

LAYOUTS: tuple[GazeLayout, ...] = (GENERIC, MPIIGAZE)


def is_gaze_data(path: Path) -> bool:
    """Return whether a path holds eye patches with gaze, and no annotated faces."""
    return any(layout.find(path) is not None for layout in LAYOUTS)


def open_gaze(path: Path) -> GazeDataset:
    """Open gaze data in any known layout."""
    layout, place = find_layout(path)
    return layout.open(place)


def find_layout(path: Path) -> tuple[GazeLayout, Path]:
    """Return the layout of gaze data, and the path at which it is opened."""
    for layout in LAYOUTS:
        if (place := layout.find(path)) is not None:
            return layout, place
    expected = ", or ".join(layout.expected for layout in LAYOUTS)
    raise AnnotationFileError(path, 0, f"is not gaze data; expected {expected}")
