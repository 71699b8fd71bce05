"""Tasks that a person asks for, at the command line, in the app or from a program.

Each decides everything about its work. Remarks, warnings and progress go to the caller
(`caller.Caller`), which also gives the login to the pool.

    >>> caller = NotedCaller()
    >>> with caller.pool() as pool:
    ...     description = ModelDescription({"population": "infant"}, {}, [])
    ...     upload = prepare_upload(caller, pool, Path("mine.dat"), "eyes", description, fields={})
    ...     upload.send(caller, pool)
"""
