"""What is said when somebody stops a command that goes on when it is given again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cli.frame.errors import ResumableError


@contextmanager
def goes_on_when_repeated() -> Iterator[None]:
    """Turn Ctrl-C within the block into an error whose hint says that nothing is lost."""
    try:
        yield
    except KeyboardInterrupt:
        raise ResumableError("interrupted") from None
