"""Charters of secure sums, and the options and sessions that all commands of them share."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from aggregators.whole_file import write_whole
from cli.frame.existing_files import require_free
from cli.frame.options import Argument, ForceOption, Option, command, group
from cli.frame.output import Invocation, Reply, TableText
from cli.frame.values import key_value_pairs
from site_agent.errors import InvalidInputError
from site_agent.pool.client import PoolClient
from site_agent.pool.profiles import secure_folder
from site_agent.secure.charter import (
    Charter,
    accept_charter,
    create_charter,
    read_charter,
    require_accepted,
)
from site_agent.secure.party import Board, read_session
from site_agent.secure.session import Session
from site_agent.settings import read_toml_table
from site_agent.tasks.model_files import whole_id

FolderOption = Annotated[
    Path | None,
    Option(
        "Folder of your key, charters and ledger. Default: 'secure' next to the logins.", "FOLDER"
    ),
]
SiteOption = Annotated[str, Option("The lab or server. Default: your own site.", "SITE")]
SessionArgument = Annotated[str, Argument("As 'poolctl secure status' shows it.", "SESSION")]


def party_folder(folder: Path | None) -> Path:
    """Return the folder of this lab or server."""
    return folder or secure_folder()


def party_name(invocation: Invocation, site: str) -> str:
    """Return the name of this lab or server: its site, asked of the pool where it is not given."""
    if site:
        return site
    with invocation.pool() as pool:
        return pool.whoami().site


def whole_session(pool: PoolClient, word: str) -> str:
    """Return the session that a word begins."""
    if len(word) == 64:
        return word
    sessions = (session.session_id for session in pool.secure.list())
    return whole_id(word, sessions, "session", "poolctl secure status")


def chosen_charter(folder: Path, word: str) -> Charter:
    """Return an accepted charter: the one with this beginning of its digest, or the only one.

    Raises `InvalidInputError`: none was accepted, or there are several.
    """
    accepted = [path.stem for path in sorted((folder / "charters").glob("*.toml"))]
    matching = [digest for digest in accepted if digest.startswith(word)]
    if len(matching) != 1:
        begun = f" that begins with {word}" if word else ""
        raise InvalidInputError(
            f"{folder}: {len(matching)} charters{begun} were accepted here, expected one",
            hint=f"name one of {', '.join(one[:16] for one in accepted)}"
            if accepted
            else "accept it with 'poolctl secure charter accept'",
        )
    return require_accepted(folder, matching[0])


def review(pool: PoolClient, folder: Path, session: str) -> Session:
    """Return a session as the board shows it, under a charter that was accepted here."""
    board = Board(pool.secure)
    charter = str(json.loads(board.descriptor(session)).get("charter", ""))
    return read_session(board, session, require_accepted(folder, charter))


# ``poolctl secure charter``.
app = group("Agree on the labs, servers and rules of secure sums.")

_FileArgument = Annotated[Path, Argument("The charter.")]


@command(
    app,
    "create",
    "secure charter create eyes -o eyes.toml --server inst-1=KEY --server inst-2=KEY "
    "--lab lab-a=KEY --lab lab-b=KEY --lab lab-c=KEY",
)
def create(
    _invocation: Invocation,
    name: Annotated[str, Argument("A name for the charter.", "NAME")],
    *,
    server: Annotated[Sequence[str], Option("An aggregation server; at least 2.", "SITE=KEY")],
    lab: Annotated[Sequence[str], Option("A lab; at least 3.", "SITE=KEY")],
    rule: Annotated[
        Sequence[str], Option("A rule, for example lab_hours=12.", "NAME=VALUE", name="--set")
    ] = (),
    study: Annotated[
        Path | None, Option("Design of a study ('poolctl blink fit-together').", "STUDY.TOML")
    ] = None,
    output: Annotated[Path, Option("The file to write.")] = Path("charter.toml"),
    force: ForceOption = False,
) -> Reply:
    """Write a charter from the keys that 'poolctl secure keygen' printed at each lab and server.

    Send the file to all of them. Each compares the digest with the others by telephone or in a
    meeting, and accepts it with 'poolctl secure charter accept'.
    """
    rules: dict[str, Any] = {
        key: float(value) if "." in value else int(value)
        for key, value in key_value_pairs(rule, "--set").items()
    }
    if study is not None:
        from site_agent.joint_study import check_design

        design = read_toml_table(study)
        rules["study"] = check_design(design, str(study)).model_dump(mode="json")
    made = create_charter(
        name, key_value_pairs(server, "--server"), key_value_pairs(lab, "--lab"), **rules
    )
    is_same = output.is_file() and output.read_bytes() == made.content
    require_free(output, force=force or is_same)
    write_whole(output, made.content)
    return _describe(made, output)


@command(
    app,
    "accept",
    "secure charter accept eyes.toml",
    'secure charter accept eyes.toml "lusab babad gutih ..."',
)
def accept(
    _invocation: Invocation,
    file: _FileArgument,
    digest: Annotated[
        str, Argument("As the others read it out: all 64 digits, or the 16 words.", "[DIGEST]")
    ] = "",
    *,
    folder: FolderOption = None,
) -> Reply:
    """Take part under a charter, after comparing its digest with the other labs and servers.

    Without DIGEST, show its members, rules and digest.
    """
    charter = read_charter(file)
    if not digest:
        return _describe(
            charter, file, "Not accepted yet: compare these words with the other labs and "
            f"servers, then run 'poolctl secure charter accept {file}' with them",
        )  # fmt: skip
    accept_charter(party_folder(folder), charter, digest)
    text = f"accepted the charter {charter.terms.name}, sha256 {charter.digest}"
    return Reply({"digest": charter.digest, "accepted": True}, text, [charter.digest])


def _describe(charter: Charter, file: Path, *first: str) -> Reply:
    terms = charter.terms
    members = [
        [member.name, kind, member.public.key_id[:16]]
        for kind, group in (("server", terms.servers), ("lab", terms.labs))
        for member in group
    ]
    rules = terms.model_dump(mode="json", exclude={"name", "servers", "labs", "study"})
    studied = [f"study {key}: {value}" for key, value in terms.study.items()]
    rule_text = ", ".join(f"{key} {value:g}" for key, value in rules.items())
    text: list[str | TableText] = [
        *first,
        f"charter {terms.name} in {file}",
        TableText(["site", "role", "fingerprint of the key"], members),
        f"rules: {rule_text}",
        *studied,
        f"sha256 {charter.groups[:39]}",
        f"       {charter.groups[40:]}",
        f"words  {charter.words[:47]}",
        f"       {charter.words[48:]}",
    ]
    data = terms.model_dump(mode="json") | {"file": str(file), "digest": charter.digest}
    return Reply(data, text, [charter.digest])
