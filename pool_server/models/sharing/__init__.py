"""Showing and changing whom a model is shared with."""
