"""Merges that the pool makes itself, for sites that want it."""
