"""Files that exist where a command wants to write.

One rule for all commands: a file is replaced only with ``--force``, or by the same bytes; the
inputs of a command are never replaced.
"""

import filecmp
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from aggregators.formats import file_digest
from aggregators.whole_file import made_apart
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
    """Refuse to write to an input of the command, under any name."""
    identities = {file_identity(other) for other in inputs} - {None}
    for path in paths:
        if file_identity(path) in identities:
            raise UsageError(f"{option} {path}: is {what}; choose another name")


def require_free_copies(copies: Iterable[tuple[Path, Path]], *, force: bool) -> None:
    """Refuse copies of files (source, target) that would replace others, before any is made.

    A target that is its source, or that holds the same bytes, does not count as replaced.
    """
    copies = list(copies)
    sources = {file_identity(source) for source, _ in copies}
    for source, target in copies:
        identity = file_identity(target)
        if identity is None or identity == file_identity(source):
            continue
        if identity in sources:
            raise UsageError(f"{target}: is also a file to copy; choose another folder")
        same = target.is_file() and source.is_file() and filecmp.cmp(source, target, shallow=False)
        require_free(target, force=force or same)


@contextmanager
def place_for_model(target: Path, *, force: bool) -> Iterator[Path]:
    """Yield the path for writing a model; its bytes are known only at the end.

    That is `target` where nothing is in the way. Otherwise it lies in a folder next to it, and
    the model and its recipe are moved to `target` at the end if the model is the same.
    """
    if force or not target.is_file():
        yield target
        return
    unsettled = tempfile.TemporaryDirectory(prefix=".unsettled-", dir=target.parent)
    with made_apart(target), unsettled as folder:
        place = Path(folder) / target.name
        yield place
        if place.is_file():
            _settle(place, target)


def _settle(place: Path, target: Path) -> None:
    made, existing = file_digest(place), file_digest(target)
    if made != existing:
        raise OutputExistsError(
            f"{target}: another model already exists (digest {existing[:12]}..., this one would "
            f"be {made[:12]}...)"
        )
    for path in sorted(place.parent.iterdir()):
        path.replace(target.with_name(path.name))
