"""Rounds: what a site computes at home, what it sends, and on which terms."""
