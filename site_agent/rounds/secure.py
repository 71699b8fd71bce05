"""A lab's visits to the secure sums of a round: it shares its update, tags, and verifies.

Its update never leaves the site as it is. In the end the site sends the sum over all labs to the
round, signed by the servers. `SitePart.take_part` says which sums a kind of contribution needs.

The pool combines base and sum, and could publish something else as the result: a network built to
photograph its training data. So a lab makes the result itself, from verified inputs
(`require_own_result`), before it signs it or trains on it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from aggregators.formats import file_digest
from aggregators.methods import merge
from aggregators.methods.networks import state_path
from aggregators.methods.registry import METHODS
from pool_server.wire.rounds import RoundResponse, RoundTerms, SecureTerms
from site_agent.errors import ContributionWithheldError, InvalidInputError
from site_agent.pool import profiles
from site_agent.pool.requests import require_field
from site_agent.secure.charter import Charter, require_accepted
from site_agent.secure.lab import Lab, RosterPolicy
from site_agent.secure.party import Board
from site_agent.secure.sums import SecureSums, SumVisit, visit_until_summed
from site_agent.secure.verification import Mode
from site_agent.work import Progress

if TYPE_CHECKING:
    from site_agent.pool.client import PoolClient


@dataclass(frozen=True, kw_only=True)
class RoundSums(SecureSums):
    """The secure sums of one round, as one lab takes part in them."""

    round_: RoundResponse


def round_folder(pool: "PoolClient", round_id: str) -> Path:
    """Return the folder of a round in the workspace; it may not exist yet."""
    return pool.cache.folder / "rounds" / profiles.host_of(pool.endpoint) / round_id


def visit_sums(
    pool: "PoolClient",
    round_: RoundResponse,
    site: str,
    step: Callable[[RoundSums], SumVisit],
    *,
    terms: RoundTerms,
    policy: RosterPolicy | None = None,
    mode: Mode = "servers",
    wait: bool,
    progress: Progress,
) -> SumVisit:
    """Take a site's possible steps in the secure sums of a round.

    `step`: `SitePart.take_part` with the site's files. `terms`: As this site checked them.
    `policy`: The labs that this lab may be summed with. `mode`: Whether the sum is verified by the
    servers' signatures, or added up again here. `wait`: Repeat the step until the last sum is
    there.

    Raises
    ------
    InvalidInputError
        The charter was not accepted here, or has other members than the round.
    ConversionError
        A number is out of the charter's range; nothing was shared.
    SecureSumError
        The sum cannot go on; names the party at fault, where it is known.
    """
    assert round_.secure is not None, f"round {round_.round_id} has no secure sum"
    folder = profiles.secure_folder()
    charter = require_accepted(folder, round_.secure.charter)
    _require_members(round_, round_.secure, charter)
    board = Board(pool.secure, charter=charter, round_id=round_.round_id)
    lab = Lab(folder, site, charter.digest, board)
    purpose = f"round {round_.round_id} with the terms {terms.digest}"
    labs = tuple(sorted(participant.site for participant in round_.participants))
    sums = RoundSums(lab, labs, purpose, policy or RosterPolicy(), mode, progress, round_=round_)
    return visit_until_summed(lambda: step(sums), wait=wait, progress=progress)


def require_own_result(pool: "PoolClient", round_: RoundResponse, site: str) -> None:
    """Raise `ContributionWithheldError` unless a finished round's result is base and verified sum.

    Rounds before it in the series are made again, too, where their optimiser's state is needed.

    `round_`: A finished secure round. `site`: The lab with the verified sum.
    """
    reasons = []
    try:
        made = file_digest(_make_result(pool, round_, site))
        if made != round_.result_digest:
            reasons = [
                f"the pool's result of secure round {round_.round_id} is sha256 "
                f"{round_.result_digest}, but its base and the sum that {site} verified make {made}"
            ]
    except InvalidInputError as error:
        reasons = [str(error)]
    if reasons:
        hint = (
            "do not use this result, and ask the pool's admin how it was made; if you know how, "
            f"--accept {round_.result_digest} accepts it"
        )
        raise ContributionWithheldError(round_.round_id, reasons, hint=hint)


def _make_result(pool: "PoolClient", round_: RoundResponse, site: str) -> Path:
    """Combine a round's base with the verified sum, as the pool has to; keep the file."""
    folder = round_folder(pool, round_.round_id)
    result = folder / "result"
    if result.is_file():
        return result
    base = pool.version(round_.base)
    require_field(base, "digest", round_.base_digest)
    inputs = [pool.fetch(base).path]
    if round_.predecessor is not None:
        before = _make_result(pool, pool.rounds.get(round_.predecessor), site)
        if file_digest(before) != round_.base_digest:
            raise InvalidInputError(
                f"the base of secure round {round_.round_id} is not the result of the rounds "
                "before it"
            )
        if state_path(before).is_file():
            inputs.append(state_path(before))
    sums = (path for path in folder.glob("*.sum") if path.is_file())
    known = round_.contributions().get(site)
    digest = "" if known is None else known.digest
    total = next((path for path in sums if file_digest(path) == digest), None)
    if total is None:
        raise InvalidInputError(
            f"{site} has not verified the sum of secure round {round_.round_id} on this machine, "
            "so its result cannot be made again here"
        )
    formats = METHODS[round_.method].output_formats
    merge(
        round_.method,
        [*inputs, total],
        options=METHODS[round_.method].take_own(round_.options),
        output=result,
        output_format=base.format if base.format in formats else formats[0],
    )
    return result


def _require_members(round_: RoundResponse, terms: SecureTerms, charter: Charter) -> None:
    sites = {participant.site for participant in round_.participants}
    if not sites <= set(charter.labs) or set(terms.servers) != set(charter.servers):
        raise InvalidInputError(
            f"round {round_.round_id} has other sites or servers than the charter "
            f"{charter.terms.name} names"
        )
