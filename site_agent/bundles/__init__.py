"""Bundles: models travel in one file between pools that no network connects."""
