"""Python processes that are there in a moment.

To start Python and load torch takes seconds of a processor, and the tests start hundreds. So one
process loads all once, and the others are forked from there: as real as any other, children of
whoever asked, with a number and arguments of their own, to be killed or stopped.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import importlib.util
import json
import os
import pkgutil
import socket
import subprocess
import sys
import threading
import time
import types
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from site_agent.work import processes

PROJECT_ROOT = Path(__file__).resolve().parent.parent
_SET_CHILD_SUBREAPER = 36
_MAIN = "from tests.forked import main; main()"
_ARGUMENT_BYTES = 16384
_REQUEST_BYTES = 1 << 20
_ONE_REQUEST = threading.Lock()
_loaded: list[socket.socket] = []


class ForkedPopen(subprocess.Popen):
    """``python [-P] -m module ...`` as `subprocess.Popen` would start it."""

    def _execute_child(self, args: Any, *others: Any) -> None:
        pipes = others[9:15]
        reading, _, _, writing, _, errors = pipes
        request = {
            "words": [str(word) for word in args],
            "folder": str(others[4] or Path.cwd()),
            "environment": dict(os.environ if others[5] is None else others[5]),
            "new_session": bool(others[20]),
            "parent": os.getpid(),
        }
        files = [each if each >= 0 else own for own, each in enumerate((reading, writing, errors))]
        with _ONE_REQUEST:
            loaded = loaded_process()
            # What is forked twice would become a child of the system's first process.
            _adopt(orphans=True)
            try:
                socket.send_fds(loaded, [json.dumps(request).encode()], files)
                answer = loaded.recv(64)
            except BrokenPipeError:
                answer = b""
            finally:
                _adopt(orphans=False)
        if not answer:
            # A test that kills at random has killed the loaded process.
            super()._execute_child(args, *others)  # type: ignore[misc]
            return
        self.pid = int(answer)
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]


def popen(command: Any, **options: Any) -> subprocess.Popen[Any]:
    """Fork what is a module of Python; start anything else as usual, and FLARE's processes."""
    words = [str(word) for word in command]
    is_module = words[0] == sys.executable and "-m" in words[1:3]
    is_module &= "engines.flare" not in " ".join(words[:4])
    # What adopts children and shows words is Linux's.
    is_module &= sys.platform == "linux"
    return (ForkedPopen if is_module else subprocess.Popen)(words, **options)


@contextmanager
def forked_workers() -> Iterator[None]:
    """Fork what `site_agent.work.processes` starts."""
    module: Any = processes
    own = module.subprocess
    module.subprocess = types.SimpleNamespace(**{**vars(own), "Popen": popen})
    try:
        yield
    finally:
        module.subprocess = own


def _adopt(*, orphans: bool) -> None:
    ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, int(orphans))


def loaded_process() -> socket.socket:
    """Return the line to the process that others are forked from; it ends with this one."""
    if not _loaded:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-c", _MAIN, str(theirs.fileno()), "." * _ARGUMENT_BYTES],
                cwd=PROJECT_ROOT,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        _loaded.append(ours)
        atexit.register(process.wait)
        atexit.register(ours.close)
    return _loaded[0]


def _load() -> None:
    """Load what commands and workers load, and need not look through again."""
    gc.disable()
    import cv2
    import dlib
    import scipy.signal
    import scipy.stats
    import torch._dynamo  # loaded with the first optimiser

    import cli
    import site_agent

    assert cv2
    assert dlib
    assert scipy
    assert torch
    for package in (cli, site_agent):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not found.name.endswith("__main__") and "engines.flare" not in found.name:
                importlib.import_module(found.name)
    gc.freeze()
    gc.enable()


def _serve(requests: socket.socket) -> dict[str, Any] | None:
    """Fork a process for each request; returns in that process, or None when there are no more."""
    while True:
        content, files, _, _ = socket.recv_fds(requests, _REQUEST_BYTES, 3)
        if not content:
            return None
        child = os.fork()
        between = os.getpid()
        if child:
            os.waitpid(child, 0)
        elif os.fork():
            os._exit(0)
        else:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            if os.fork():
                break
            # This one stays as it is, for what the new process will start itself.
            requests.close()
            ours.close()
            requests = theirs
        for file in files:
            os.close(file)
    theirs.close()
    _loaded.append(ours)
    request: dict[str, Any] = json.loads(content)
    while (adopting := os.getppid()) != request["parent"]:
        if adopting != between:
            # Who asked for it was killed meanwhile.
            os._exit(1)
        time.sleep(0.0005)
    if request["new_session"]:
        os.setsid()
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    _show_words(request["words"])
    requests.send(str(os.getpid()).encode())
    return request


def _show_words(words: list[str]) -> None:
    """Let the system show these as the arguments of this process."""
    fields = Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()
    start, end = int(fields[45]), int(fields[46])
    text = b"".join(os.fsencode(word) + b"\0" for word in words)
    ctypes.memset(start, 0, end - start)
    ctypes.memmove(start, text[: end - start - 1], min(len(text), end - start - 1))


def _become(words: list[str]) -> None:
    """Run what ``python [-P] -m module ...`` would."""
    name, *arguments = words[words.index("-m") + 1 :]
    spec = importlib.util.find_spec(name)
    if spec is not None and spec.submodule_search_locations is not None:
        spec = importlib.util.find_spec(f"{name}.__main__")
    assert spec is not None
    assert spec.origin is not None
    code = spec.loader.get_code(spec.name)  # type: ignore[attr-defined]
    main = types.ModuleType("__main__")
    vars(main).update({"__file__": spec.origin, "__spec__": spec, "__package__": spec.parent})
    sys.modules["__main__"] = main
    sys.argv = [spec.origin, *arguments]
    exec(code, vars(main))


def main() -> None:
    """Load all, and fork processes until nobody asks for more."""
    _load()
    request = _serve(socket.socket(fileno=int(sys.argv[1])))
    code: object = 0
    try:
        if request is not None:
            with forked_workers():
                _become(request["words"])
    except SystemExit as ended:
        code = ended.code or 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    # To take all apart, as Python does in the end, would make copies of all that is shared.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    if not isinstance(code, int):
        print(code, file=sys.stderr)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    os._exit(code if isinstance(code, int) else 1)
