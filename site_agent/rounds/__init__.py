"""Rounds: the computation at home, the file that is sent, and the terms."""
