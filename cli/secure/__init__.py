"""``poolctl secure``: sums of updates that no server sees or falsifies."""

import tempfile
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from cli.frame import existing_files, options
from cli.frame.output import Invocation, Reply, TableText
from cli.live import terminated_as_interrupted
from cli.secure import charter as charters
from cli.secure.charter import (
    FolderOption,
    SessionArgument,
    SiteOption,
    chosen_charter,
    party_folder,
    party_name,
    review,
    whole_session,
)
from site_agent.errors import ConflictError, InvalidInputError
from site_agent.pool.signing import create_key, load_key
from site_agent.secure.party import Board
from site_agent.secure.server import Server
from site_agent.secure.server import serve as serve_board
from site_agent.secure.session import Fault, Session
from site_agent.secure.verification import Mode, find_liars, verify_result

app = options.group("Sum up updates so that no server sees or falsifies them.")


@options.command(app, "keygen", "secure keygen", "secure keygen --site server-1")
def keygen(invocation: Invocation, *, site: SiteOption = "", folder: FolderOption = None) -> Reply:
    """Create the key with which your lab or server signs in secure sums.

    The private key stays in a file that only you can read. Give the printed public key to the
    author of the charter, in a way that proves your identity. If there is a key, it is shown.
    """
    name, place = party_name(invocation, site), party_folder(folder)
    made = load_key(place, name) or create_key(place, name)
    data = {"site": name, "key": made.key.public.text, "path": str(made.path)}
    return Reply(data, f"{name}={made.key.public.text}", [made.key.public.text])


@options.command(app, "serve", "secure serve", "secure serve --site server-1")
def serve(
    invocation: Invocation,
    charter: Annotated[
        str, options.Argument("The accepted charter. Default: the only one.", "[SHA256]")
    ] = "",
    *,
    site: SiteOption = "",
    folder: FolderOption = None,
) -> None:
    """Run an aggregation server until stopped: at an institution of its own, never at the pool's.

    The server only calls the pool; nobody needs to reach it. It can be killed at any moment and
    started again. Its folder must not be copied or put back from a backup: the ledger in it keeps
    the server from opening a sum twice.
    """
    place = party_folder(folder)
    chosen = chosen_charter(place, charter)
    name = party_name(invocation, site)
    with suppress(KeyboardInterrupt), terminated_as_interrupted(), invocation.pool() as pool:
        server = Server(place, name, chosen.digest, Board(pool.secure))
        invocation.note(f"{name} serves the charter {chosen.terms.name} at {pool.endpoint}")
        serve_board(server, report=invocation.note)


@options.command(app, "status", "secure status", "secure status 4f1d2c3b4a59")
def status(
    invocation: Invocation,
    session: Annotated[str, options.Argument("Only this session.", "SESSION")] = "",
    *,
    folder: FolderOption = None,
    limit: options.LimitOption = 20,
) -> Reply:
    """List your sessions, or show one: its phase, the parties it waits for, and faults."""
    place = party_folder(folder)
    with invocation.pool() as pool:
        if session:
            view = review(pool, place, whole_session(pool, session))
            faults = _faults(view)
            return Reply(_data(view, faults), _description(view, faults), [view.session])
        items, rows = [], []
        for listed in invocation.first_of(pool.secure.list(), limit):
            try:
                view = review(pool, place, listed.session_id)
            except InvalidInputError as error:
                invocation.warn(f"session {listed.session_id[:16]}: {error}")
                continue
            items.append(_data(view) | {"round_id": listed.round_id})
            shared = f"{len(view.shares)} of {len(view.descriptor.labs)}"
            kind, waiting = view.descriptor.layout.kind, ", ".join(view.waiting)
            rows.append(
                [view.session[:16], _state(view), waiting, shared, listed.round_id or "", kind]
            )
    columns = ["session", "phase", "waits for", "labs", "round", "sum"]
    table = TableText(columns, rows, empty="no sessions found")
    return Reply({"items": items}, table, [item["session"] for item in items])


@options.command(
    app,
    "verify",
    "secure verify 4f1d2c3b4a59 -o sum.contribution",
    "secure verify 4f1d2c3b4a59 --full",
)
def verify(
    invocation: Invocation,
    session: SessionArgument,
    *,
    full: Annotated[
        bool, options.Option("Add up all openings, and trust no server; fetches more.")
    ] = False,
    output: Annotated[Path | None, options.Option("Where to write the verified sum.")] = None,
    force: options.ForceOption = False,
    folder: FolderOption = None,
) -> Reply:
    """Verify the result of a session.

    Without --full, the result counts if all servers signed it: one honest server is enough.
    """
    if output is not None:
        existing_files.require_free(output, force=force)
    with invocation.pool() as pool, tempfile.TemporaryDirectory() as scratch:
        view = review(pool, party_folder(folder), whole_session(pool, session))
        target = output or Path(scratch) / "sum"
        mode: Mode = "full" if full else "servers"
        written = verify_result(view, Board(pool.secure), target, mode=mode)
    data = {
        "session": view.session,
        "mode": mode,
        "sum_digest": written.sum_digest,
        "file_digest": written.file_digest,
        "weight": written.weight,
        "labs": written.labs,
        "path": None if output is None else str(output),
    }
    how = "from all openings" if full else "by the signatures of all servers"
    text = [
        f"verified {how}: the sum of {len(written.labs)} labs ({', '.join(written.labs)})",
        f"weight {written.weight}, sha256 {written.file_digest}",
    ]
    return Reply(data, text, [written.file_digest])


@options.command(app, "void", "secure void 4f1d2c3b4a59 --reason 'lab-c lost its disk' -y")
def void(
    invocation: Invocation,
    session: SessionArgument,
    *,
    reason: Annotated[str, options.Option("Why, for all to read.")],
    site: SiteOption = "",
    folder: FolderOption = None,
    yes: options.YesOption = False,
) -> Reply:
    """Declare, as a server, that you have not opened a session and deleted its shares.

    Once all servers have done so, the labs may start again, also without some of them.
    """
    place = party_folder(folder)
    name = party_name(invocation, site)
    with invocation.pool() as pool:
        view = review(pool, place, whole_session(pool, session))
        invocation.confirm(f"Give up session {view.session[:16]} for good?", assume_yes=yes)
        server = Server(place, name, view.charter.digest, Board(pool.secure))
        if not server.declare_void(view.session, reason):
            raise ConflictError(f"{name} has opened session {view.session[:16]} already")
        view = server.review(view.session)
    left = sorted(set(view.charter.servers) - view.voids)
    text = "all servers gave the session up" if not left else f"waiting for {', '.join(left)}"
    return Reply(_data(view), text, [view.session])


app.add_typer(charters.app, name="charter")


def _state(view: Session) -> str:
    return "void" if view.is_void else view.phase


def _faults(view: Session) -> tuple[Fault, ...]:
    """Return the faults of a session; in the phase of blame, those that its answers show."""
    if view.phase == "blame" and view.has("blame") and not view.faults:
        return find_liars(view, time.time())
    return view.faults


def _data(view: Session, faults: tuple[Fault, ...] | None = None) -> dict[str, Any]:
    return {
        "session": view.session,
        "phase": _state(view),
        "charter": view.charter.digest,
        "kind": view.descriptor.layout.kind,
        "numbers": view.descriptor.layout.size,
        "invited": view.descriptor.labs,
        "shared": sorted(view.shares),
        "roster": sorted(view.roster),
        "waiting": view.waiting,
        "voids": sorted(view.voids),
        "rejected_posts": view.rejected,
        "faults": [asdict(fault) for fault in (view.faults if faults is None else faults)],
    }


def _description(view: Session, faults: tuple[Fault, ...]) -> TableText:
    descriptor = view.descriptor
    optional = [
        ("received", ", ".join(sorted(view.roster))),
        ("waits for", ", ".join(view.waiting)),
        ("given up by", ", ".join(sorted(view.voids))),
        ("unsigned posts", str(view.rejected or "")),
        *(("fault", f"{fault} ({fault.kind}: {', '.join(fault.parties)})") for fault in faults),
    ]
    rows = [
        ["session", view.session],
        ["phase", _state(view)],
        [
            "sum",
            f"{descriptor.layout.kind}, {descriptor.layout.size:,} numbers, "
            f"attempt {descriptor.attempt}",
        ],
        ["invited", ", ".join(descriptor.labs)],
        ["shared", ", ".join(sorted(view.shares))],
        *([name, value] for name, value in optional if value),
    ]
    return TableText(["what", "value"], rows)
