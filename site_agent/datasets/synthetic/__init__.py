"""Faces that the project draws itself: persons, pictures, data sets and videos.

Nobody's picture is needed to try the project out or to test it. Everything is made from numbers:
the same seed gives the same pictures, and what is true of them (landmarks, boxes, closure of the
lids, blinks) is known exactly.
"""

from __future__ import annotations

from site_agent.datasets.synthetic.canvas import Camera
from site_agent.datasets.synthetic.conditioning import ConditioningDesign
from site_agent.datasets.synthetic.conditioning_videos import (
    ConditioningVideo,
    trials_file,
    write_conditioning_video,
)
from site_agent.datasets.synthetic.eyes import Blink, closure_curve, random_blinks
from site_agent.datasets.synthetic.head_model import Expression, Pose
from site_agent.datasets.synthetic.persons import Person, person
from site_agent.datasets.synthetic.portraits import (
    Portrait,
    RenderedFace,
    eye_aspect_ratios,
    face_box,
    render_face,
    render_group,
)
from site_agent.datasets.synthetic.rendering import Light
from site_agent.datasets.synthetic.sites import (
    SITE_STYLES,
    SiteStyle,
    face_dataset_files,
    write_face_dataset,
)
from site_agent.datasets.synthetic.videos import VideoScene, truth_files, write_blink_video

__all__ = [
    "SITE_STYLES",
    "Blink",
    "Camera",
    "ConditioningDesign",
    "ConditioningVideo",
    "Expression",
    "Light",
    "Person",
    "Portrait",
    "Pose",
    "RenderedFace",
    "SiteStyle",
    "VideoScene",
    "closure_curve",
    "eye_aspect_ratios",
    "face_box",
    "face_dataset_files",
    "person",
    "random_blinks",
    "render_face",
    "render_group",
    "trials_file",
    "truth_files",
    "write_blink_video",
    "write_conditioning_video",
    "write_face_dataset",
]
