"""Tokens: what programs show to be let in."""
