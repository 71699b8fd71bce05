"""Outputs of an analysis: one file each, and one line each in `registry.OUTPUTS`."""
