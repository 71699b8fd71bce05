"""What is wrong with an annotation file, gathered so that one reading tells all of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from site_agent.errors import AnnotationFileError

_MOST_SHOWN = 12


class Problems:
    """Gathers errors of single boxes and images, with which a file can still be read on."""

    def __init__(self) -> None:
        self._errors: list[AnnotationFileError] = []

    @contextmanager
    def gathered(self) -> Iterator[None]:
        """Keep an error of this block for later."""
        try:
            yield
        except AnnotationFileError as error:
            self._errors.append(error)

    def raise_all(self) -> None:
        """Raise what was gathered as one error; nothing where nothing was.

        Raises
        ------
        AnnotationFileError
            With file and line of the first problem; its text names those of the others, too.
        """
        if not self._errors:
            return
        ordered = sorted(self._errors, key=lambda error: error.line)
        first, *others = ordered[:_MOST_SHOWN]
        lines = [first.problem, *map(str, others)]
        more = len(ordered) - _MOST_SHOWN
        if more > 0:
            lines.append(f"... and {more} more")
        raise AnnotationFileError(first.path, first.line, "\n".join(lines)) from first
