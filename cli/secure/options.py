"""What the commands of ``poolctl secure`` have in common."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.frame.output import Invocation

if TYPE_CHECKING:
    from site_agent.pool.client import PoolClient
    from site_agent.secure.charter import Charter
    from site_agent.secure.session import Session

FolderOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        help="Folder of your key, charters and ledger. Default: 'secure' beside the logins.",
    ),
]
SiteOption = Annotated[
    str, typer.Option(metavar="SITE", help="The lab or server. Default: your own site.")
]
SessionArgument = Annotated[
    str, typer.Argument(metavar="SESSION", help="As 'poolctl secure status' shows it.")
]


def party_folder(folder: Path | None) -> Path:
    """Return the folder of this lab or server."""
    from site_agent.pool.profiles import secure_folder

    return folder or secure_folder()


def party_name(invocation: Invocation, site: str) -> str:
    """Return the name of this lab or server: its site, asked of the pool where it is not given."""
    if site:
        return site
    with invocation.pool() as pool:
        return pool.whoami().site


def whole_session(pool: PoolClient, word: str) -> str:
    """Return the session that a word begins."""
    from site_agent.errors import InvalidInputError, NotFoundError

    if len(word) == 64:
        return word
    matching = [each.session_id for each in pool.secure.list() if each.session_id.startswith(word)]
    if not matching:
        raise NotFoundError(
            f"no session begins with {word}", hint="poolctl secure status lists your sessions"
        )
    if len(matching) > 1:
        raise InvalidInputError(f"{len(matching)} sessions begin with {word}: give more digits")
    return matching[0]


def chosen_charter(folder: Path, word: str) -> Charter:
    """Return an accepted charter: the one whose digest a word begins, or the only one.

    Raises
    ------
    InvalidInputError
        None was accepted, or there are several.
    """
    from site_agent.errors import InvalidInputError
    from site_agent.secure.charter import require_accepted

    accepted = [path.stem for path in sorted((folder / "charters").glob("*.toml"))]
    matching = [digest for digest in accepted if digest.startswith(word)]
    if len(matching) != 1:
        begun = f" that begins with {word}" if word else ""
        raise InvalidInputError(
            f"{folder}: {len(matching)} charters{begun} were accepted here, expected one",
            hint="accept it with 'poolctl secure charter accept', or name its digest by --charter",
        )
    return require_accepted(folder, matching[0])


def review(pool: PoolClient, folder: Path, session: str) -> Session:
    """Return a session as the board shows it, under a charter that was accepted here."""
    import json

    from site_agent.secure.board import PoolBoard, read_session
    from site_agent.secure.charter import require_accepted

    board = PoolBoard(pool.secure)
    charter = str(json.loads(board.descriptor(session)).get("charter", ""))
    return read_session(board, session, require_accepted(folder, charter))
