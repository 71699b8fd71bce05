"""Rounds of several sites on one machine: the way to choose a method."""
