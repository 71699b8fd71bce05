"""What becomes of files that are where a command wants to write.

One rule for all commands: a file is replaced only with ``--force``, or by the same bytes.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cli.errors import OutputExistsError


def require_free(path: Path, *, force: bool) -> None:
    """Refuse a path at which something is, before any work.

    Raises
    ------
    OutputExistsError
        A folder is there, or a file and `force` is false.
    """
    if path.is_dir():
        raise OutputExistsError(f"{path}: is a folder; expected the name of a file")
    if path.exists() and not force:
        raise OutputExistsError(f"{path}: is there already")


def words_on_existing(path: Path, *, force: bool) -> str:
    """Return what a dry run adds where a file is in the way of a model."""
    if force or not path.exists():
        return ""
    return "; a file is there, which only --force or the same model replaces"


@contextmanager
def place_for_model(target: Path, *, force: bool) -> Iterator[Path]:
    """Give the path at which to write a model, whose bytes are known only once it is made.

    That is `target` where nothing is in the way. Otherwise it lies in a folder beside it, and what
    was made there, the recipe with it, takes its place at the end if the model is the same.

    Raises
    ------
    OutputExistsError
        Another model is there; it stays as it is.
    """
    if force or not target.is_file():
        yield target
        return
    with tempfile.TemporaryDirectory(prefix=".unsettled-", dir=target.parent) as folder:
        place = Path(folder) / target.name
        yield place
        if place.is_file():
            _settle(place, target)


def _settle(place: Path, target: Path) -> None:
    from aggregators.formats import file_digest

    made, found = file_digest(place), file_digest(target)
    if made != found:
        raise OutputExistsError(
            f"{target}: another model is there already (digest {found[:12]}..., this one would "
            f"be {made[:12]}...)"
        )
    for path in sorted(place.parent.iterdir()):
        path.replace(target.with_name(path.name))
