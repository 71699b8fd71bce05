"""Long work on this machine: progress, child processes, steps, locks, files and measurements."""

from collections.abc import Callable

Progress = Callable[[float | None, str], None]
"""Takes the completed share (0 to 1; None if unknown) and a text; may raise to stop the work."""


def no_progress(_share: float | None, _text: str) -> None:
    """Report nothing."""


def part_of(progress: Progress, start: float, end: float) -> Progress:
    """Return a report for the part of the work between two shares."""
    return lambda share, text: progress(start + (share or 0.0) * (end - start), text)
