"""The end of a round: the pool combines the contributions, and the site signs the result.

The steps before are in `site_agent.rounds.contributing`. Any site of the round may finish it: it
asks the pool for a merge job, waits for it as for any other merge, and signs the published result.
"""

from dataclasses import dataclass
from datetime import UTC, datetime

from aggregators.methods.registry import METHODS
from pool_server.wire.models import ModelVersionResponse
from pool_server.wire.names import ModelAddress
from pool_server.wire.rounds import RoundResponse
from site_agent.errors import ConflictError, PoolAnswerError
from site_agent.federated.personal import PersonalStore
from site_agent.pool.client import PoolClient, parse_address
from site_agent.pool.profiles import personal_folder
from site_agent.rounds.contract import require_sound_base
from site_agent.rounds.secure import require_own_result
from site_agent.rounds.terms import find_first
from site_agent.work import Progress


def take_reply(pool: PoolClient, round_: RoundResponse, site: str) -> None:
    """Put the reply to this site's contribution in its personal part.

    A site does it before it contributes to the next round, and when it finishes a round or looks
    at one that has ended. Nothing happens where there is no reply, or where nothing was kept: the
    site has trained on another machine, or has removed it.

    Raises `InvalidInputError` if the reply cannot be used, and `PoolClientError` if the pool does
    not give it out.
    """
    method = METHODS.get(round_.method)
    if round_.state != "finished" or method is None or not method.replies:
        return
    store = PersonalStore(personal_folder() / find_first(pool, round_).round_id)
    if site in round_.contributions() and store.path(site, round_.number).is_file():
        store.take_reply(site, round_.number, pool.rounds.reply(round_.round_id))


@dataclass(frozen=True)
class FinishedRound:
    """The end of a round.

    `left_out`: Sites that did not contribute in time. `ended_here`: False where somebody else had
    ended the round.
    """

    round: RoundResponse
    version: ModelVersionResponse
    left_out: tuple[str, ...]
    ended_here: bool


def finish_round(
    pool: PoolClient,
    round_id: str,
    *,
    upload_to: str | ModelAddress = "",
    early: bool = False,
    despite_withdrawal: bool = False,
    progress: Progress | None = None,
) -> FinishedRound:
    """Have the pool combine a round's contributions, publish the result, and wait for it.

    Where this profile has a key of the site at which the result is published, it signs it. The
    signature says that the pool gave this result to the site, which cannot combine the
    contributions itself. The starter makes the same call to sign a result that another site has
    published, and every site makes it to fetch its own reply of a method that has them.

    `upload_to`: The address for the result; by default the base's name at the site that started
    the round. So the results of a series have one address for all finishing sites.
    `early`: Do not wait for sites that have not contributed; only for the starter and admins.
    `despite_withdrawal`: Continue although the base was withdrawn, or contains a withdrawn model.

    Raises `ConflictError` if sites are waited for, the round expired or was cancelled, or the base
    was withdrawn; or the pool could not combine the contributions, and `ContributionWithheldError`
    if the result of a secure round is not the base and the sum that this site verified.
    """
    round_, ended_here = pool.rounds.get(round_id), False
    if round_.state != "finished":
        require_sound_base(round_, despite_withdrawal=despite_withdrawal)
        if early and round_.state == "open" and not round_.ready:
            round_ = pool.rounds.close(round_id)
        _require_ready(round_)
        address = parse_address(str(upload_to or round_.result_address))
        job = pool.rounds.finish(round_id, address, despite_withdrawal=despite_withdrawal)
        round_ = _wait_for_end(pool, round_id, job.merge_id, progress)
        who = pool.whoami()
        ended_here = round_.ended_by == f"{who.site}/{who.token_name}"
    if round_.result is None:
        raise PoolAnswerError(f"round {round_id} has no result, though it is {round_.state}")
    version = _sign_result(pool, round_, round_.result, ended_here=ended_here)
    take_reply(pool, round_, pool.whoami().site)
    left_out = tuple(round_.sites("late", "missing", "waiting"))
    return FinishedRound(round_, version, left_out, ended_here)


def _sign_result(
    pool: PoolClient, round_: RoundResponse, address: str, *, ended_here: bool
) -> ModelVersionResponse:
    """Sign a result where this site is to, and return its version."""
    version, own_site = pool.version(address), pool.whoami().site
    # The combining site signs, and so does the starter: the result may get its address.
    if not ended_here and own_site != round_.created_by.partition("/")[0]:
        return version
    if round_.secure is not None:
        require_own_result(pool, round_, own_site)
    if version.signed_by is not None or not pool.signatures.signing_key(version.site):
        return version
    pool.signatures.sign(version.address)
    return pool.version(address)


def _wait_for_end(
    pool: PoolClient, round_id: str, merge_id: str, progress: Progress | None
) -> RoundResponse:
    """Wait for the merge that combines the contributions, and return the round it has ended.

    All sites that finish a round at the same time wait for the same merge.
    """
    job = pool.merges.wait(merge_id, progress=progress)
    round_ = pool.rounds.get(round_id)
    if round_.state != "finished":
        refusal = job.refusal
        raise ConflictError(
            f"merge {merge_id} of round {round_id} "
            + (f"failed: {refusal.message}" if refusal else f"is {job.state}"),
            code="" if refusal is None else refusal.code,
        )
    return round_


def _require_ready(round_: RoundResponse) -> None:
    if round_.ready:
        return
    if round_.state in {"expired", "cancelled"}:
        raise ConflictError(f"round {round_.round_id} is {round_.state}; it has no result")
    waiting = ", ".join(round_.sites("waiting"))
    hint = f"who started it may go on without them: poolctl rounds finish {round_.round_id} --early"
    if round_.secure:
        hint = (
            "each site runs 'poolctl rounds contribute' until it has contributed; "
            "'poolctl secure status' shows who is waited for"
        )
    raise ConflictError(
        f"round {round_.round_id} waits for {waiting} until {round_.deadline:%Y-%m-%d %H:%M} UTC",
        hint=hint,
        code="round_open",
    )


def round_verdict(round_: RoundResponse, finish: str = "") -> str:
    """Return the state of a round and the next step, in one sentence or two.

    `finish`: The command that combines the contributions, for people at a terminal.
    """
    there, asked = len(round_.contributions()), len(round_.participants)
    waiting = ", ".join(round_.sites("waiting"))
    if round_.state == "finished":
        following = f"; the next round is {round_.successor}" if round_.successor else ""
        return f"Finished: the result is {round_.result}{following}."
    if round_.state == "cancelled":
        return "Cancelled: it has no result."
    if round_.state == "expired":
        return (
            f"Expired: {there} of {asked} sites contributed, and it needed {round_.fewest_sites}."
        )
    if round_.ready:
        without = ", ".join(round_.sites("late", "missing"))
        return (
            f"Ready, with {there} of {asked} sites{f' (without {without})' if without else ''}"
            f"{f': {finish}' if finish else '.'}"
        )
    return (
        f"Open until {moment_words(round_.deadline)}: {there} of {asked} sites have contributed, "
        f"and it waits for {waiting}."
    )


def moment_words(moment: datetime) -> str:
    """Return a moment as people read it, in UTC."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
