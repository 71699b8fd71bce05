"""Jobs: long work that a person asked for, done by a process of its own.

`folder` keeps the jobs of app, command line and agent in ``POOL_HOME/jobs``; `runner` is the one
process that does them, which starts with the first job and ends some time after the last; `kinds`
is the table of functions for worker processes. Closing the app or the terminal stops nothing; a
crash costs at most the jobs in work.
"""
