"""Rendered eye patches with known gaze: data for gaze networks that shows nobody's eyes."""

from site_agent.datasets.synthetic.eye_patches.dataset import (
    RenderSettings,
    render_person,
    write_eye_dataset,
)
from site_agent.datasets.synthetic.eye_patches.persons import Skews

__all__ = ["RenderSettings", "Skews", "render_person", "write_eye_dataset"]
