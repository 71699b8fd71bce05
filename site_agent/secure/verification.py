"""Verification of a sum: by all openings (`full`), or by the servers' signatures (`servers`).

`full` believes no server. `servers` holds if one server is honest, and needs only the combined
contribution, not the openings.

Where the check values of labs and servers do not agree, each server has posted those of every
single share. If a server's values do not add up to its check value, the server is at fault. If
those of a lab do not add up to its tag, the lab posts the expected ones. If these do not add up to
the tag either, the lab is at fault; otherwise they differ from some server's post, and one of the
two lied. A share is never decrypted to settle it.
"""

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import numpy as np

from aggregators.errors import AggregatorError
from aggregators.formats import file_digest
from aggregators.methods.networks.round_files import write_network_contribution
from aggregators.methods.refitting import write_contribution
from aggregators.secure_sum import sharing
from aggregators.secure_sum.layout import combine_leaves, combine_network, decode_sum, name_sums
from aggregators.whole_file import write_whole
from site_agent.errors import DigestMismatchError, NotFoundError, SecureSumError
from site_agent.plain_json import write_json
from site_agent.secure.party import Board, challenges_of
from site_agent.secure.session import Fault, Session

Mode = Literal["servers", "full"]


@dataclass(frozen=True)
class WrittenResult:
    """The result of a session on disk.

    `sum_digest`, `file_digest`: SHA-256 of the sum's numbers, and of the file. `weight`: The sum of
    all weights. `labs`: Those that were summed. `faults`: Servers that signed another result than
    all openings give (`full` only).
    """

    path: Path
    sum_digest: str
    file_digest: str
    weight: int
    labs: tuple[str, ...]
    faults: tuple[Fault, ...] = ()


def verify_result(
    view: Session, board: Board, target: Path, *, mode: Mode = "servers"
) -> WrittenResult:
    """Verify a session and write its result: one combined contribution, or the sums of numbers.

    Raises `SecureSumError` if the session has no result, or one that does not verify; names the
    parties at fault.
    """
    if mode == "full":
        if not view.has("opening"):
            raise unfinished(view)
        total = add_openings(view, board, target.parent)
        return _compare_results(view, write_result(view, total, target))
    if not view.has("result"):
        raise unfinished(view)
    results = view.bodies("result")
    first = next(iter(results.values()))
    # One honest server is enough: it signs nothing but what all openings give.
    if any(result != first for result in results.values()):
        text = f"{', '.join(results)} signed different results; verify in full"
        raise SecureSumError((Fault("result", "refusal", (), text),))
    if sorted(first.labs) != sorted(view.roster):
        raise SecureSumError(
            (Fault("result", "proof", tuple(results), "the servers signed another roster"),)
        )
    _fetch(board, view.session, first.file, target, _most_bytes_of_result(view))
    return WrittenResult(target, first.sum, first.file, first.weight, first.labs)


def unfinished(view: Session) -> SecureSumError:
    """Return the error of a session without a result."""
    faults = view.faults
    if not faults:
        waiting = ", ".join(view.waiting) or "the servers"
        ended = f"; void: {', '.join(sorted(view.voids))}" if view.voids else ""
        text = f"the session is in this phase and waits for {waiting}{ended}"
        faults = (Fault(view.phase, "refusal", (), text),)
    return SecureSumError(faults)


def add_openings(view: Session, board: Board, folder: Path) -> sharing.UInt64:
    """Return the sum that the servers opened, without its masks.

    Raises `SecureSumError` if an opening differs from its server's commitment; names the server.

    Returns
    -------
    uint64, shape (size of the layout,)
    """
    size = view.descriptor.layout.size
    count = size + view.charter.terms.challenges
    drawn = challenges_of(view)
    total: sharing.UInt64 = np.zeros(count, dtype=np.uint64)
    commits, checks = view.bodies("commit"), view.bodies("check")
    for server, opening in view.bodies("opening").items():
        with TemporaryDirectory(dir=folder) as place:
            path = Path(place) / "opening"
            _fetch(board, view.session, opening.blob, path, sharing.NUMBER_BYTES * count)
            content = path.read_bytes()
        try:
            part = sharing.from_bytes(content, count)
        except ValueError as error:
            text = f"the opening of {server}: {error}"
            raise SecureSumError((Fault("opening", "proof", (server,), text),)) from error
        opener = bytes.fromhex(opening.opener)
        made = sharing.commitment(view.session, view.roster, server, opener, part)
        if (
            made != commits[server].commitment
            or sharing.check_values(part, drawn) != checks[server].values
        ):
            text = f"{server} opened something else than it committed to"
            raise SecureSumError((Fault("opening", "proof", (server,), text),))
        sharing.add_to(total, part)
    return total[:size]


def write_result(view: Session, total: sharing.UInt64, target: Path) -> WrittenResult:
    """Write the result of a sum; the same bytes at every party.

    Raises `SecureSumError` if the sum is out of the range that inputs in range can give.
    """
    layout, labs = view.descriptor.layout, tuple(sorted(view.roster))
    try:
        # Each lab that trains a network has samples; a leaf need not be reached by each lab.
        least = 1 if layout.kind in ("network", "numbers") else 0
        used = layout.use(view.charter.budget)
        mean, weights = decode_sum(total, layout.shape[0], len(labs), used, least)
    except ValueError as error:
        text = f"{error}; some lab gave an input out of range"
        raise SecureSumError((Fault("result", "refusal", (), text),)) from error
    weight = int(weights.sum())
    try:
        if layout.kind == "network":
            settings = {**layout.settings, "secure_sum": view.session, "labs": len(labs)}
            write_network_contribution(combine_network(layout, mean, weight, settings), target)
        elif layout.kind == "leaf-sums":
            write_contribution(combine_leaves(layout, mean, weights), target)
        elif layout.kind == "numbers":
            sums = name_sums(layout, mean, len(labs), view.charter.budget)
            write_json(target, {"session": view.session, "labs": labs, "sums": sums})
        else:
            write_whole(target, sharing.to_bytes(sharing.from_signed(weights)))
    except (AggregatorError, ValueError) as error:
        # The labs agreed to this layout, so it is not the fault of a server.
        text = f"the layout is that of no contribution: {error}"
        raise SecureSumError((Fault("result", "refusal", (), text),)) from error
    digest = hashlib.sha256(sharing.to_bytes(total)).hexdigest()
    return WrittenResult(target, digest, file_digest(target), weight, labs)


def _compare_results(view: Session, written: WrittenResult) -> WrittenResult:
    results = view.bodies("result") if view.has("result") else {}
    mine = (written.sum_digest, written.file_digest, written.weight, written.labs)
    faults = tuple(
        Fault("result", "proof", (server,), f"{server} signed another result than was opened")
        for server, result in results.items()
        if (result.sum, result.file, result.weight, tuple(sorted(result.labs))) != mine
    )
    return replace(written, faults=faults)


def _most_bytes_of_result(view: Session) -> int:
    """Return the maximal size of a combined contribution: its numbers and its layout."""
    described = len(view.descriptor.to_bytes())
    return sharing.NUMBER_BYTES * view.descriptor.layout.size + 2 * described + 1024**2


def _fetch(board: Board, session: str, digest: str, target: Path, most_bytes: int) -> None:
    try:
        board.get_blob(session, digest, target, most_bytes)
    except NotFoundError as error:
        text = f"the board lacks the file {digest[:16]}"
        raise SecureSumError((Fault("opening", "refusal", (), text),)) from error
    except DigestMismatchError as error:
        raise SecureSumError((Fault("opening", "refusal", (), str(error)),)) from error
    if file_digest(target) != digest:
        target.unlink()
        text = f"the board gives another file than {digest[:16]}"
        raise SecureSumError((Fault("opening", "refusal", (), text),))


def find_liars(view: Session, now: float) -> tuple[Fault, ...]:
    """Return the parties at fault in a blame phase; empty while a lab has time to answer."""
    posted = view.bodies("blame")
    checks = view.bodies("check")
    answers = view.answers()
    faults = [
        Fault("blame", "proof", (server,), f"the parts of {server} do not give its check values")
        for server in posted
        if sharing.add_check_values(posted[server].parts.values()) != checks[server].values
    ]
    disputed = disputed_labs(view)
    silent = tuple(lab for lab in disputed if lab not in answers)
    if silent and now <= view.descriptor.deadlines.answer:
        return ()
    if silent:
        text = f"{', '.join(silent)} did not answer in time"
        faults.append(Fault("blame", "silence", silent, text))
    for lab in disputed:
        answer = answers.get(lab)
        if isinstance(answer, Fault):
            faults.append(answer)
        elif answer is not None:
            faults.extend(_compare(view, lab, answer.body.parts))  # type: ignore[union-attr]
    return tuple(faults)


def disputed_labs(view: Session) -> tuple[str, ...]:
    """Return the labs with tags that are not the sum of the servers' posts of their shares."""
    posted, tags = view.bodies("blame"), view.bodies("tag")
    return tuple(
        lab
        for lab in sorted(view.roster)
        if sharing.add_check_values(posted[server].parts[lab] for server in posted)
        != tags[lab].values
    )


def _compare(view: Session, lab: str, expected: dict[str, tuple[int, ...]]) -> list[Fault]:
    if sharing.add_check_values(expected.values()) != view.bodies("tag")[lab].values:
        text = f"the answer of {lab} does not give its own tag"
        return [Fault("blame", "proof", (lab,), text)]
    posted = view.bodies("blame")
    return [
        Fault("blame", "pair", (lab, server), f"{lab} and {server} differ; one of them lied")
        for server in sorted(posted)
        if posted[server].parts[lab] != expected[server]
    ]
