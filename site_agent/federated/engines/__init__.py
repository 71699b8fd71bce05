"""Engines of rounds: on one machine, through a pool, and live."""
