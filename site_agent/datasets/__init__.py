"""Annotated faces: reading and writing them, checks, changes, and faces that are drawn here."""
