"""Faces that the project draws itself: persons, pictures, data sets and videos.

Nobody's picture is needed to try the project out or to test it. Everything is made from numbers:
the same seed gives the same pictures, and what is true of them (landmarks, boxes, closure of the
lids, blinks) is known exactly.
"""

from site_agent.datasets.synthetic.sites import SITE_STYLES, face_dataset_files, write_face_dataset
from site_agent.datasets.synthetic.videos import (
    trials_file,
    truth_files,
    write_blink_video,
    write_conditioning_video,
)

__all__ = [
    "SITE_STYLES",
    "face_dataset_files",
    "trials_file",
    "truth_files",
    "write_blink_video",
    "write_conditioning_video",
    "write_face_dataset",
]
