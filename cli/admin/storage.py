"""``poolctl admin backup|restore|gc|fsck``: run on the pool's own machine, without a token."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.frame.errors import VerificationError
from cli.frame.options import Argument, FolderArgument, Option, YesOption, command
from cli.frame.output import Invocation, Reply
from cli.server import DatabaseOptions
from site_agent.wording import count_words, first_lines, size_words

if TYPE_CHECKING:
    from pool_server.operations.backup import BackupMade, Dropped

# Part of the group `admin`, which has the help.
app = typer.Typer()

_MOST_SHOWN = 50


@command(
    app,
    "backup",
    "admin backup /backups/pool --data /srv/pool",
    "admin backup /backups/pool --config /etc/poolctl.toml --verify --keep 14",
)
def backup(
    invocation: Invocation,
    folder: FolderArgument,
    *,
    database: DatabaseOptions,
    verify: Annotated[bool, Option("Read the whole snapshot again and verify it.")] = False,
    keep: Annotated[
        int | None,
        Option("Delete all but the newest N snapshots once this one is complete.", "N", min=1),
    ] = None,
) -> Reply:
    """Copy the database and the model files to a folder while the pool keeps serving.

    Files that an earlier snapshot in the folder has are not copied again. The database and the
    storage are those of the options, or of the pool's settings (POOL_SERVER_...). Exit code 5 if
    files are missing or damaged: the snapshot lacks only those, and no older one is deleted. The
    folder holds hashes of tokens: protect it like the pool.
    """
    from pool_server.operations.backup import check_snapshot, drop_snapshots, make_backup
    from pool_server.operations.maintenance import open_pool_offline

    with (
        open_pool_offline(database.settings_of_pool()) as pool,
        invocation.progress("backup") as report,
    ):
        made = make_backup(pool, folder, progress=report)
    snapshot = made.snapshot
    problems = snapshot.gaps
    if verify:
        with invocation.progress("verify") as report:
            problems = check_snapshot(snapshot, progress=report)
    if snapshot.missing:
        problems.append("see: poolctl admin fsck")
    _refuse_problems(f"snapshot {snapshot.name} was taken, but", problems)
    dropped = None if keep is None else drop_snapshots(folder, keep)
    return _describe_backup(made, dropped, verified=verify)


def _describe_backup(made: "BackupMade", dropped: "Dropped | None", *, verified: bool) -> Reply:
    snapshot = made.snapshot
    facts = {
        "snapshot": snapshot.name,
        "folder": snapshot.folder,
        "revision": snapshot.revision,
        "rows": snapshot.rows,
        "files": len(snapshot.files),
        "copied_files": made.copied_files,
        "copied_bytes": made.copied_bytes,
        "verified": verified,
    }
    lines = [
        f"{snapshot.folder}: {count_words(snapshot.rows, 'row')}, "
        f"{count_words(len(snapshot.files), 'file')}, "
        f"{made.copied_files} of them copied now ({size_words(made.copied_bytes)})"
    ]
    if dropped is not None:
        facts |= {"dropped": dropped.snapshots, "dropped_bytes": dropped.size_bytes}
        lines.append(
            f"{count_words(len(dropped.snapshots), 'older snapshot')} dropped, with "
            f"{count_words(dropped.files, 'file')} ({size_words(dropped.size_bytes)})"
        )
    return Reply(facts, lines, [snapshot.name])


@command(
    app,
    "restore",
    "admin restore /backups/pool --data /srv/new-pool",
    "admin restore /backups/pool --snapshot 20260301T120000000000Z",
)
def restore(
    invocation: Invocation,
    folder: Annotated[Path, Argument("A folder that 'poolctl admin backup' wrote.", "FOLDER")],
    *,
    snapshot: Annotated[str, Option("Default: the newest.", "NAME")] = "",
    database: DatabaseOptions,
) -> Reply:
    """Restore a snapshot into an empty pool with its servers stopped.

    A backup of SQLite and a folder can be restored into PostgreSQL and S3, which moves a pool from
    one machine to a consortium's servers. Sites, users, tokens and the audit come back as they
    were. After an interruption, run the command again to continue.
    """
    from pool_server.operations.backup import list_snapshots
    from pool_server.operations.restore import restore_snapshot
    from pool_server.server import hold_data_folder

    there = list_snapshots(folder)
    chosen = next((stored for stored in reversed(there) if snapshot in {"", stored.name}), None)
    if chosen is None:
        names = ", ".join(stored.name for stored in there[-5:])
        raise VerificationError(f"{folder} has no snapshot {snapshot!r}; the newest are: {names}")
    settings = database.settings()
    with hold_data_folder(settings), invocation.progress("restore") as report:
        restored = restore_snapshot(settings, chosen, progress=report)
    facts = {
        "snapshot": chosen.name,
        "database": settings.database_place,
        "rows": restored.rows,
        "files": restored.files,
        "size_bytes": restored.size_bytes,
        "missing": chosen.missing,
    }
    for digest in chosen.missing:
        invocation.warn(f"the snapshot lacks the file {digest}")
    text = (
        f"snapshot {chosen.name} is in {settings.database_place}: {restored.rows} rows, "
        f"{restored.files} files ({size_words(restored.size_bytes)})"
    )
    return Reply(facts, text, [chosen.name])


@command(app, "gc", "admin gc --data /srv/pool", "admin gc --yes")
def gc(invocation: Invocation, *, database: DatabaseOptions, yes: YesOption = False) -> Reply:
    """List model files without a record; remove them with --yes.

    Deleted versions and crashed servers leave such files. The pool may keep serving.
    """
    from pool_server.operations.maintenance import collect_garbage, open_pool_offline

    with (
        open_pool_offline(database.settings_of_pool()) as pool,
        invocation.progress("gc") as report,
    ):
        collected = collect_garbage(pool, remove=yes, progress=report)
    facts = {"files": collected.digests, "removed": collected.removed}
    if not collected.digests:
        return Reply(facts, "every file has a record")
    if yes:
        return Reply(
            facts, f"{count_words(len(collected.removed), 'file')} removed", collected.removed
        )
    files = count_words(len(collected.digests), "file has", "files have")
    text = f"{files} no record; remove with --yes"
    return Reply(facts, [*collected.digests[:_MOST_SHOWN], text], collected.digests)


@command(app, "fsck", "admin fsck --data /srv/pool", "admin fsck --quick --json")
def fsck(
    invocation: Invocation,
    *,
    database: DatabaseOptions,
    quick: Annotated[bool, Option("Check that the files exist, but not their digests.")] = False,
) -> Reply:
    """Check that every record has its file with the right digest, and every file its record.

    Exit code 5 if something is damaged or missing. Files without a record only waste space
    ('poolctl admin gc' removes them). The pool may keep serving.
    """
    from pool_server.operations.maintenance import check_pool, open_pool_offline

    with (
        open_pool_offline(database.settings_of_pool()) as pool,
        invocation.progress("fsck") as report,
    ):
        findings = check_pool(pool, read_files=not quick, progress=report)
    damage = [
        f"{problem.subject}: {problem.text}" for problem in findings.problems if problem.is_damage
    ]
    _refuse_problems(count_words(len(damage), "problem"), damage)
    rest = [f"{problem.text}" for problem in findings.problems]
    unknown = sum(problem.kind == "file-unknown" for problem in findings.problems)
    checked = "is there" if quick else "is whole"
    verdict = (
        f"Every file {checked}: {count_words(findings.versions, 'version')}, "
        f"{count_words(findings.files, 'file')} ({size_words(findings.size_bytes)}); "
        f"{count_words(unknown, 'file')} without a record."
    )
    return Reply(findings, [verdict, *rest[:_MOST_SHOWN]])


def _refuse_problems(subject: str, problems: list[str]) -> None:
    if not problems:
        return
    raise VerificationError("\n".join([f"{subject}:", *first_lines(problems, _MOST_SHOWN)]))
