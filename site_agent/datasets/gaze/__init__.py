"""Eye patches with gaze: records, the layouts they are read from, checks, numbers and sheets."""

from site_agent.datasets.gaze.check import check_gaze, gaze_statistics, is_gaze_data, open_gaze
from site_agent.datasets.gaze.generic_layout import TABLE_NAME
from site_agent.datasets.gaze.records import (
    PATCH_SHAPE,
    GazeDataset,
    GazeSamples,
    angular_errors_deg,
    gaze_digest,
    held_out_sessions,
    join_digests,
    join_samples,
    person_digests,
    sample_marks,
    select_sessions,
)
from site_agent.datasets.gaze.sheets import draw_found_gaze, draw_patch, write_gaze_sheet

__all__ = [
    "PATCH_SHAPE",
    "TABLE_NAME",
    "GazeDataset",
    "GazeSamples",
    "angular_errors_deg",
    "check_gaze",
    "draw_found_gaze",
    "draw_patch",
    "gaze_digest",
    "gaze_statistics",
    "held_out_sessions",
    "is_gaze_data",
    "join_digests",
    "join_samples",
    "open_gaze",
    "person_digests",
    "sample_marks",
    "select_sessions",
    "write_gaze_sheet",
]
