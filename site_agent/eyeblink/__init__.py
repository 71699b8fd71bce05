"""Eyeblinks in videos, one folder a stage; `pipeline` says how it works."""
