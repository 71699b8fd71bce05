"""Rounds: several sites refine one model together, without moving data."""
