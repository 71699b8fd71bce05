"""Correcting what is said of a version: description, labels and metrics."""
