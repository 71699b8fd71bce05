"""Replies to single sites: what a round has made for one of them, and that one alone may read.

They lie in the state of the round, which nobody can download, and go with it: when the result is
withdrawn or deleted, there is no reply any more.
"""

from __future__ import annotations

from aggregators.methods.networks.replies import encode_reply
from aggregators.methods.networks.round_files import decode_optimiser_state
from pool_server.errors import MissingError
from pool_server.http.identity import Caller
from pool_server.http.session import ServerParts
from pool_server.registry.repository import get_version
from pool_server.registry.withdrawal_status import require_not_withdrawn
from pool_server.rounds import service
from pool_server.rounds.methods import find_round_method


def read_reply(parts: ServerParts, caller: Caller, key: str) -> bytes:
    """Return the reply to the contribution of the caller's own site, whatever the caller's role.

    Raises
    ------
    MissingError
        The site has not contributed, the round has not ended, or its method makes no replies.
    VersionWithdrawnError
        The result of the round is not given out any more.
    """
    with parts.database.read() as session:
        found = service.get_round(session, caller, key)
        own = next((each for each in found.contributions if each.site_id == caller.site_id), None)
        state, result = found.state_digest, found.result_version_id
        replies = find_round_method(found.method).aggregation.replies
        if own is None or state is None or result is None or not replies:
            raise MissingError(
                f"round {key} has no reply to site {caller.site!r}",
                code="reply_not_found",
                hint=f"`poolctl rounds info {key}` shows who has contributed and how it ended.",
            )
        require_not_withdrawn(get_version(session, result))
    with parts.storage.content_file(state) as path:
        reply = encode_reply(decode_optimiser_state(path.read_bytes()), own.digest)
    assert reply is not None, f"the state of round {key} has a reply to each contribution"
    return reply
