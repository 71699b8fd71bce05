"""Withdrawing a version, following it through all merges, and what replaces it."""
