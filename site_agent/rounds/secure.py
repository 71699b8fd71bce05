"""A site's part in the secure sum of a round: it shares what it computed, tags, and verifies.

Its update never leaves the site as it is. What the site sends to the round in the end is the sum
over all labs, which the servers signed. Of leaf refinement two sums are made: first, how many labs
reach each leaf; then, the changes of the leaves that enough of them reach.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pool_server.wire.rounds import RoundResponse, SecureTerms
from site_agent.errors import InvalidInputError, SecureSumError
from site_agent.pool import profiles
from site_agent.runs.progress import Progress

if TYPE_CHECKING:
    from site_agent.pool.client import PoolClient
    from site_agent.secure.charter import Charter
    from site_agent.secure.contributions import EncodedContribution
    from site_agent.secure.lab import Lab
    from site_agent.secure.session import Session

_POLL_S = 2.0


@dataclass(frozen=True)
class SumVisit:
    """How the sum of a round stands after a visit.

    Attributes
    ----------
    session : str
        The last session that this site took part in.
    phase : str
        What the session waits for; ``complete`` once the sum is there.
    waiting : tuple of str
        Labs or servers that have to act next.
    total : Path or None
        The verified sum, as one contribution.
    """

    session: str
    phase: str
    waiting: tuple[str, ...]
    total: Path | None = None


def visit_sum(  # noqa: PLR0917 - each is a different thing
    pool: PoolClient,
    found: RoundResponse,
    site: str,
    contribution: Path,
    base: Path,
    target: Path,
    *,
    wait: bool,
    progress: Progress,
) -> SumVisit:
    """Do what a site can do now in the secure sum of a round.

    Parameters
    ----------
    contribution : Path
        What the site computed; only shares of it leave the site.
    target : Path
        Where the verified sum is written.
    wait : bool
        Come again until the sum is there.

    Raises
    ------
    InvalidInputError
        The charter was not accepted here, or has other members than the round.
    ConversionError
        A number is out of the charter's range; nothing was shared.
    SecureSumError
        The sum cannot go on; says who is at fault, where that is known.
    """
    from site_agent.secure.charter import require_accepted
    from site_agent.secure.lab import Lab
    from site_agent.secure.pool_board import PoolBoard

    assert found.secure is not None, f"round {found.round_id} has no secure sum"
    folder = profiles.secure_folder()
    charter = require_accepted(folder, found.secure.charter)
    _require_members(found, found.secure, charter)
    board = PoolBoard(pool.secure, charter=charter, round_id=found.round_id)
    lab = Lab(folder, site, charter.digest, board)
    while True:
        visit = _visit_once(lab, found, contribution, base, target)
        if visit.total is not None or not wait:
            return visit
        progress(None, f"{visit.phase}: waiting for {', '.join(visit.waiting) or 'the servers'}")
        time.sleep(_POLL_S)


def _require_members(found: RoundResponse, terms: SecureTerms, charter: Charter) -> None:
    sites = {each.site for each in found.participants}
    if not sites <= set(charter.labs) or set(terms.servers) != set(charter.servers):
        raise InvalidInputError(
            f"round {found.round_id} has other sites or servers than the charter "
            f"{charter.terms.name} names"
        )


def _visit_once(
    lab: Lab, found: RoundResponse, contribution: Path, base: Path, target: Path
) -> SumVisit:
    from site_agent.secure.contributions import (
        encode_leaf_presence,
        encode_leaf_sums,
        encode_network_file,
        read_presence,
    )

    budget = lab.charter.budget
    if found.method != "leaf-refit":
        mean = found.options.get("mean", "samples")
        encoded = encode_network_file(contribution, base, budget, mean=mean)
        return _take_part(lab, found, encoded, target)
    counted = target.with_suffix(".presence")
    first = _take_part(lab, found, encode_leaf_presence(contribution, budget), counted)
    if first.total is None:
        return first
    least = lab.charter.terms.least_labs
    encoded = encode_leaf_sums(contribution, read_presence(counted), least, budget)
    return _take_part(lab, found, encoded, target)


def _take_part(
    lab: Lab, found: RoundResponse, encoded: EncodedContribution, target: Path
) -> SumVisit:
    """Share, tag or verify in the session of one sum, whatever is next."""
    lab.approve_base(encoded.layout.base_digest)
    session = _find_session(lab, found, encoded)
    if not lab.share(session, encoded.layout, encoded.numbers):
        return SumVisit(session, "keys", lab.review(session).waiting)
    view = lab.visit(session)
    if view.is_void:
        return SumVisit(session, "void", ())
    if view.phase != "complete":
        return SumVisit(session, view.phase, _awaited(view))
    if not target.is_file():
        lab.finish(session, target)
    return SumVisit(session, view.phase, (), target)


def _find_session(lab: Lab, found: RoundResponse, encoded: EncodedContribution) -> str:
    """Return the first session of this sum that is not void; open one where there is none."""
    from site_agent.secure.session import new_descriptor

    def find() -> tuple[str, int]:
        attempts = 0
        for session in lab.board.sessions():
            try:
                view = lab.review(session)
            except InvalidInputError:
                continue  # of another charter, or none at all
            if view.descriptor.layout.digest != encoded.layout.digest:
                continue
            attempts = max(attempts, view.descriptor.attempt)
            if not view.is_void:
                return session, attempts
        return "", attempts

    session, attempts = find()
    if not session:
        sites = sorted(each.site for each in found.participants)
        descriptor = new_descriptor(
            lab.charter,
            encoded.layout,
            lab.clock(),
            labs=sites,
            attempt=attempts + 1,
            purpose=f"round {found.round_id}",
        )
        lab.board.open_session(descriptor.to_bytes())
        # Another lab may have opened one at the same moment: all take the first.
        session, _ = find()
    if not session:
        raise SecureSumError((), hint="the pool does not show the session that was opened")
    return session


def _awaited(view: Session) -> tuple[str, ...]:
    """Return who has to act next; before the receipts, the labs that have not shared."""
    if view.phase == "receipt" and len(view.shares) < len(view.descriptor.labs):
        return tuple(each for each in view.descriptor.labs if each not in view.shares)
    return view.waiting
