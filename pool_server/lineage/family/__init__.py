"""Ancestors and descendants of models."""
