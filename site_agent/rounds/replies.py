"""Replies of rounds, for methods that make something else for each site."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aggregators.methods.registry import METHODS
from site_agent.pool.profiles import personal_folder

if TYPE_CHECKING:
    from pool_server.wire.rounds import RoundResponse
    from site_agent.pool.client import PoolClient


def first_round(pool: PoolClient, found: RoundResponse) -> str:
    """Return the identifier of the first round of a series."""
    while found.predecessor is not None:
        found = pool.rounds.get(found.predecessor)
    return found.round_id


def take_reply(pool: PoolClient, found: RoundResponse, site: str) -> None:
    """Put the reply to this site's contribution in what it has kept of a round.

    A site does it before it contributes to the next round, and when it finishes a round or looks
    at one that has ended. Nothing happens where there is no reply, or where nothing was kept: the
    site has trained on another machine, or has removed it.

    Raises
    ------
    InvalidInputError
        The reply cannot be used.
    PoolClientError
        The pool does not give it out.
    """
    from site_agent.federated.personal import PersonalStore

    method = METHODS.get(found.method)
    if found.state != "finished" or method is None or not method.replies:
        return
    store = PersonalStore(personal_folder() / first_round(pool, found))
    if site in found.contributions() and store.path(site, found.number).is_file():
        store.take_reply(site, found.number, pool.rounds.reply(found.round_id))
