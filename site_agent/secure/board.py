"""The board: where the parties of a secure sum post signed messages and large ciphertexts.

The board is not trusted. It can withhold, repeat or reorder its posts; every reader checks every
signature against the keys in the charter.
"""

import hashlib
from datetime import UTC, datetime
from pathlib import Path

from site_agent.errors import InvalidInputError, PoolAnswerError
from site_agent.pool.resources.rounds import SecureSessions
from site_agent.secure.charter import Charter
from site_agent.secure.messages import Post
from site_agent.secure.session import Session, parse_descriptor


class Board:
    """An append-only board with a store of large files, which a pool keeps.

    Laws: a post never changes; posting the same bytes again changes nothing and succeeds; all
    methods may be called again after the process was killed.

    `sessions`: ``pool.secure`` of a `site_agent.PoolClient`. `charter`: The charter for sessions
    that are opened here: its members have the names of their sites in the pool. `round_id`: The
    round of the sessions.
    """

    def __init__(
        self,
        sessions: SecureSessions,
        *,
        charter: Charter | None = None,
        round_id: str | None = None,
    ) -> None:
        self._sessions = sessions
        self._charter = charter
        self._round_id = round_id
        self._descriptors: dict[str, bytes] = {}
        # Messages never change, so only new ones are asked for.
        self._known: dict[str, list[Post]] = {}
        self._last: dict[str, int] = {}

    def open_session(self, descriptor: bytes) -> str:
        """Keep a descriptor and return its SHA-256, the session."""
        if self._charter is None:
            raise InvalidInputError("a session can be opened only under a charter")
        session = parse_descriptor(descriptor, self._charter)
        sites = [*session.labs, *self._charter.servers]
        ends_at = datetime.fromtimestamp(session.deadlines.answer, UTC)
        opened = self._sessions.open(descriptor.decode(), sites, ends_at, self._round_id)
        return _require_session(opened.session_id, descriptor)

    def sessions(self) -> list[str]:
        """Return all sessions, in the order in which they were opened."""
        sessions = self._sessions.list(self._round_id or "")
        return [item.session_id for item in sessions][::-1]

    def descriptor(self, session: str) -> bytes:
        """Return a session's descriptor, or raise `NotFoundError`."""
        if session not in self._descriptors:
            descriptor = self._sessions.get(session).descriptor.encode()
            _require_session(session, descriptor)
            self._descriptors[session] = descriptor
        return self._descriptors[session]

    def post(self, session: str, phase: str, sender: str, envelope: bytes) -> None:
        """Append a message; `ConflictError` if the sender has posted another one in this phase."""
        self._sessions.post(session, phase, sender, envelope.decode())

    def posts(self, session: str) -> list[Post]:
        """Return all messages of a session, in order of arrival."""
        known = self._known.setdefault(session, [])
        for post in self._sessions.posts(session, self._last.get(session, 0)):
            known.append(Post(session, post.phase, post.sender, post.envelope.encode()))
            self._last[session] = post.number
        return [*known]

    def put_blob(self, session: str, sender: str, path: Path) -> str:
        """Keep a file and return its SHA-256."""
        return self._sessions.send_file(session, sender, path)

    def get_blob(self, session: str, digest: str, target: Path, most_bytes: int) -> None:
        """Write a kept file to `target`, whole or not at all; one above `most_bytes` is refused."""
        self._sessions.receive_file(session, digest, target, most_bytes)


def _require_session(session: str, descriptor: bytes) -> str:
    """Return the session if it is that of the descriptor."""
    # All keys and challenges follow from the descriptor; the pool must not choose it.
    digest = hashlib.sha256(descriptor).hexdigest()
    if session != digest:
        raise PoolAnswerError(
            f"the pool gave a descriptor with SHA-256 {digest} for session {session}"
        )
    return session


def read_session(board: Board, session: str, charter: Charter) -> Session:
    """Read a session from a board.

    Raises `InvalidInputError` if the board's descriptor has another digest, or does not belong to
    this charter.
    """
    content = board.descriptor(session)
    if hashlib.sha256(content).hexdigest() != session:
        raise InvalidInputError(f"the board gives another descriptor for {session[:16]}")
    return Session(content, charter, board.posts(session))
