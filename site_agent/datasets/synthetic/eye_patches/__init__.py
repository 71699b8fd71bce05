"""Rendered eye patches with known gaze: data for gaze networks that shows nobody's eyes."""
