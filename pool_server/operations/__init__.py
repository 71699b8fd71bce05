"""Looking after a pool from its own machine: backup, restore, garbage, checking.

These work on database and storage directly, next to running servers or without any.
"""
