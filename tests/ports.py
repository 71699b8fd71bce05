"""Ports for servers of tests with an address that others have to know before they start."""

import socket

_HELD: list[socket.socket] = []


def free_port() -> int:
    """Return a port of 127.0.0.1 that the system gives to nobody else while this process runs.

    It stays bound; programs that set SO_REUSEADDR, as servers do, can listen on it.
    """
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("127.0.0.1", 0))
    _HELD.append(holder)
    return int(holder.getsockname()[1])
