"""Fork a limited child for each program to run, from a process that has everything loaded.

Starting Python and loading numpy and numba takes a second; reading most files takes
milliseconds. This process does the first once. For every request it forks; the child takes on
its limits, reads untrusted bytes, answers and ends.

Run by the server as ``python -m pool_server.jobs.helper_main FD``, with one end of a pair of
sequenced-packet sockets. A request carries four descriptors: the child's standard input with a
JSON object ``{"module", "plan", "limits"}``, its standard output, its error output, and a pipe to
which this process writes the child's number and, when it has ended, how (as `subprocess` counts:
negative for a signal), each on a line. The child writes lines of JSON to its standard output:
any number with ``progress`` and ``activity``, then the answer. When the server is gone, or after
long idling, this process ends with all its children.

The fork server of `multiprocessing` would start children as fast, but with the environment of the
server, where its secrets are; each child would load the server's main module again, and outlive a
killed server.
"""

import contextlib
import errno
import gc
import importlib
import json
import math
import os
import resource
import select
import signal
import socket
import sys
import traceback
from collections.abc import Mapping

from aggregators.formats.fingerprints import load_kernels

LONGEST_IDLE_S = 300.0
OUT_OF_MEMORY = errno.ENOMEM
TOO_LARGE = errno.EFBIG
"""Exit codes of a child."""
# The only modules that are run, even if someone else got hold of the socket.
PROGRAMS = (
    "pool_server.transfers.checking",
    "pool_server.rounds.methods",
    "pool_server.jobs.merging",
    "pool_server.jobs.drawing",
)


def load_everything() -> None:
    """Load the modules of all programs, once rather than in every child."""

    for module in ("aggregators.methods", "aggregators.methods.refitting", *PROGRAMS):
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
        waiting = None if children else 1000 * LONGEST_IDLE_S
        ready = {descriptor for descriptor, _ in watched.poll(waiting)}
        if wake_reading in ready:
            os.read(wake_reading, 4096)
            report_ended(children)
        if requests.fileno() in ready:
            message, descriptors, _, _ = socket.recv_fds(requests, 1, 4)
            if not message:
                break
            *outputs, status = descriptors
            child = os.fork()
            if child == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                become_program(outputs)
            for output in outputs:
                os.close(output)
            children[child] = status
            write_number(status, child)
        if not ready:
            break
    for child in children:
        os.kill(child, signal.SIGKILL)


def become_program(descriptors: list[int]) -> None:
    """Run one program with the given input and outputs; never returns."""
    code = 1
    try:
        for place, descriptor in enumerate(descriptors):
            os.dup2(descriptor, place)
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        request = json.load(sys.stdin)
        if request["module"] in PROGRAMS:
            program = importlib.import_module(request["module"])
            limit_resources(**request["limits"])
            write_answer(program.run(request["plan"]))
            code = 0
    except MemoryError:
        code = OUT_OF_MEMORY
    except BaseException as error:
        if isinstance(error, OSError) and error.errno in {OUT_OF_MEMORY, TOO_LARGE}:
            code = error.errno
        traceback.print_exc()
    finally:
        try:
            sys.stderr.flush()
        finally:
            # Not the ordinary way out: that would run what the parent has registered.
            os._exit(code)


def limit_resources(memory_bytes: int, time_s: float, output_bytes: int) -> None:
    """Bound this process: address space, processor and wall time, files written, core dumps."""
    whole_seconds = max(1, math.ceil(time_s))
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CPU, (whole_seconds, whole_seconds + 1))
    resource.setrlimit(resource.RLIMIT_FSIZE, (output_bytes, output_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # If the server dies, only this timer ends the process.
    signal.setitimer(signal.ITIMER_REAL, time_s)


def write_answer(answer: Mapping[str, object]) -> None:
    try:
        text = json.dumps(answer, allow_nan=False)
    except ValueError:
        text = json.dumps(
            {"accepted": False, "message": "the model has values that are not finite"}
        )
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def report_ended(children: dict[int, int]) -> None:
    """Write how each child ended that has ended since."""
    while children:
        child, status = os.waitpid(-1, os.WNOHANG)
        if child == 0:
            return
        place = children.pop(child)
        write_number(place, os.waitstatus_to_exitcode(status))
        os.close(place)


def write_number(place: int, number: int) -> None:
    # The server may have stopped listening.
    with contextlib.suppress(OSError):
        os.write(place, f"{number}\n".encode())


def main() -> None:
    # Ctrl-C in a terminal reaches the whole group; the server says when this ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.disable()
    load_everything()
    # Children neither look through loaded objects for garbage, nor copy them for that.
    gc.freeze()
    gc.enable()
    with socket.socket(fileno=int(sys.argv[1])) as requests:
        serve(requests)


if __name__ == "__main__":
    main()
