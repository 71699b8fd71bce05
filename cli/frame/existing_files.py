"""Files that exist where a command wants to write.

One rule for all commands: a file is replaced only with ``--force``, or by the same bytes; and what
a command reads is not replaced even so.
"""

import filecmp
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from cli.frame.errors import OutputExistsError, UsageError
from site_agent.work.files import file_identity


def require_free(path: Path, *, force: bool) -> None:
    """Refuse a path at which something is, before any work."""
    if path.is_dir():
        raise OutputExistsError(f"{path}: is a folder; expected the name of a file")
    if path.exists() and not force:
        raise OutputExistsError(f"{path}: already exists")


def refuse_inputs(
    paths: Iterable[Path], inputs: Iterable[Path], option: str, *, what: str = "an input"
) -> None:
    """Refuse paths at which files are that the command reads, under whatever name."""
    taken = {file_identity(other) for other in inputs} - {None}
    for path in paths:
        if file_identity(path) in taken:
            raise UsageError(f"{option} {path}: is {what}; choose another name")


def require_free_copies(copies: Iterable[tuple[Path, Path]], *, force: bool) -> None:
    """Refuse copies of files (source, target) that would replace others, before any is made.

    A target that is its source, or that holds the same bytes, does not count as replaced.
    """
    copies = list(copies)
    sources = {file_identity(source) for source, _ in copies}
    for source, target in copies:
        found = file_identity(target)
        if found is None or found == file_identity(source):
            continue
        if found in sources:
            raise UsageError(f"{target}: is also a file to copy; choose another folder")
        same = target.is_file() and source.is_file() and filecmp.cmp(source, target, shallow=False)
        require_free(target, force=force or same)


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
            f"{target}: another model already exists (digest {found[:12]}..., this one would "
            f"be {made[:12]}...)"
        )
    for path in sorted(place.parent.iterdir()):
        path.replace(target.with_name(path.name))
