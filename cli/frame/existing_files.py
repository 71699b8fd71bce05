"""Files that exist where a command wants to write.

One rule for all commands: a file is replaced only with ``--force``; the inputs of a command are
never replaced.
"""

from collections.abc import Iterable
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
    """Refuse to write to an input of the command, under any name."""
    identities = {file_identity(other) for other in inputs} - {None}
    for path in paths:
        if file_identity(path) in identities:
            raise UsageError(f"{option} {path}: is {what}; choose another name")


def require_free_copies(copies: Iterable[tuple[Path, Path]], *, force: bool) -> None:
    """Refuse copies of files (source, target) that would replace others, before any is made.

    A target that is its source does not count as replaced.
    """
    copies = list(copies)
    sources = {file_identity(source) for source, _ in copies}
    for source, target in copies:
        identity = file_identity(target)
        if identity is None or identity == file_identity(source):
            continue
        if identity in sources:
            raise UsageError(f"{target}: is also a file to copy; choose another folder")
        require_free(target, force=force)
