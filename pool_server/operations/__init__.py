"""Looking after a pool from its own machine: backup, restore, garbage, checking.

These work on database and storage directly, beside the servers or without any.
"""
