"""Programs side by side on this machine, each a process with a log of its own."""

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from site_agent.work.processes import Process, start, stop

_LOOK_INTERVAL_S = 0.1
_STOP_TIMEOUT_S = 15.0


@dataclass(frozen=True)
class Program:
    """One program, which writes into a log."""

    command: Sequence[str]
    log: Path
    environment: Mapping[str, str]
    """Variables in addition to those of this process."""
    answer: Path | None = None
    """Gets its standard output; by default the log has both."""


def run_programs(
    programs: Mapping[str, Program],
    *,
    at_once: int | None = None,
    on_look: Callable[[], None] = lambda: None,
) -> Generator[tuple[str, int]]:
    """Run programs, and yield each that ends, with its exit code.

    Closing the generator stops those that still run.

    `at_once`: Start no more before others have ended. `on_look`: Called several times a second; may
    raise to stop them all.
    """
    waiting, running = list(programs), dict[str, Process]()
    with ExitStack() as stack:
        while waiting or running:
            while waiting and (at_once is None or len(running) < at_once):
                name = waiting.pop(0)
                running[name] = _start(programs[name], stack)
            ended = {name: code for name in running if (code := running[name].poll()) is not None}
            for name, code in ended.items():
                del running[name]
                yield name, code
            if not ended:
                on_look()
                time.sleep(_LOOK_INTERVAL_S)


def _start(program: Program, stack: ExitStack) -> Process:
    with ExitStack() as files:
        log = files.enter_context(program.log.open("ab"))
        answer = None if program.answer is None else program.answer.open("wb")
        output = log if answer is None else files.enter_context(answer)
        process = start(program.command, stdout=output, stderr=log, environment=program.environment)
    stack.callback(stop, process, grace_s=_STOP_TIMEOUT_S)
    return process
