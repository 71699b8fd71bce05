"""The process that has everything loaded, and becomes a limited process for each file to look at.

Starting Python and loading numpy and numba takes a second; looking at most files takes
milliseconds. This process does the first once. For every request it forks; the child takes on
its limits, reads one stranger's file, answers, and ends, and takes nothing with it.

Run by the server as ``python -m pool_server.jobs.warm_main FD``, with one end of a pair of
sequenced-packet sockets. A request is JSON, ``{"module": ..., "arguments": [...]}``, with three
descriptors: the child's standard output, its error output, and a pipe to which this process
writes the child's number and, when it has ended, how (as `subprocess` counts it: negative for a
signal), each with a line end. When the server is gone, or after long idling, it ends with all
its children.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import signal
import socket
import sys
import traceback
from collections.abc import Sequence

LONGEST_IDLE_S = 300.0
LARGEST_REQUEST_BYTES = 64 * 1024
# Nothing else is run, whoever may get hold of the socket.
PROGRAMS = (
    "pool_server.transfers.model_check",
    "pool_server.rounds.contribution_check",
    "pool_server.rounds.combination",
)


def load_everything() -> None:
    """Load what the programs need, before the first request rather than in every child."""
    from aggregators.formats.warming import load_kernels

    for module in ("aggregators.methods.refitting", *PROGRAMS):
        importlib.import_module(module)
    load_kernels()


def serve(requests: socket.socket) -> None:
    """Fork for each request until the other end is closed, or nothing comes for long."""
    wake_reading, wake_writing = os.pipe()
    os.set_blocking(wake_writing, False)
    signal.set_wakeup_fd(wake_writing, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    children: dict[int, int] = {}
    # Not select(), which takes no descriptor above 1023: the socket has its number of the server.
    watched = select.poll()
    watched.register(requests, select.POLLIN)
    watched.register(wake_reading, select.POLLIN)
    while True:
        waiting = None if children else LONGEST_IDLE_S
        ready = {each for each, _ in watched.poll(None if waiting is None else 1000 * waiting)}
        if wake_reading in ready:
            os.read(wake_reading, 4096)
            tell_ended(children)
        if requests.fileno() in ready:
            message, descriptors, _, _ = socket.recv_fds(requests, LARGEST_REQUEST_BYTES, 3)
            if not message:
                break
            output, errors, status = descriptors
            child = os.fork()
            if child == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                become_program(message, output, errors)
            os.close(output)
            os.close(errors)
            children[child] = status
            tell(status, child)
        if not ready:
            break
    for child in children:
        os.kill(child, signal.SIGKILL)


def become_program(request: bytes, output: int, errors: int) -> None:
    """Run one program with the given outputs; never returns."""
    code = 1
    try:
        nothing = os.open(os.devnull, os.O_RDONLY)
        for descriptor, place in ((nothing, 0), (output, 1), (errors, 2)):
            os.dup2(descriptor, place)
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        wanted = json.loads(request)
        if wanted["module"] in PROGRAMS:
            code = importlib.import_module(wanted["module"]).main(wanted["arguments"])
        sys.stdout.flush()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        try:
            sys.stderr.flush()
        finally:
            # Not the ordinary way out: that would run what the parent has registered.
            os._exit(code)


def tell_ended(children: dict[int, int]) -> None:
    """Tell of every child that has ended since."""
    while children:
        child, status = os.waitpid(-1, os.WNOHANG)
        if child == 0:
            return
        place = children.pop(child)
        tell(place, os.waitstatus_to_exitcode(status))
        os.close(place)


def tell(place: int, number: int) -> None:
    # Whoever asked may not listen any more.
    with contextlib.suppress(OSError):
        os.write(place, f"{number}\n".encode())


def main(arguments: Sequence[str] | None = None) -> int:
    descriptor = int((sys.argv[1:] if arguments is None else arguments)[0])
    # Ctrl-C in a terminal reaches the whole group; the server says when this ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    load_everything()
    with socket.socket(fileno=descriptor) as requests:
        serve(requests)
    return 0


if __name__ == "__main__":
    sys.exit(main())
