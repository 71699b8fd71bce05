"""A party of the secure sum, lab or server: a board, and a folder with key, ledger and secrets.

::

    <folder>/charters/<digest>.toml      accepted charters
    <folder>/<name>.pem                  the key that signs
    <folder>/ledger.jsonl                messages, each written before it was sent
    <folder>/sessions/<session>/         secrets of a session, deleted at its end

Shares are sealed to a server by HPKE in base mode (RFC 9180) with the whole context in `info`; the
suite is DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, ChaCha20Poly1305. Servers make a key pair for each
session and delete it afterwards.

The board: where the parties of a secure sum post signed messages and large ciphertexts.

The board is not trusted. It can withhold, repeat or reorder its posts; every reader checks every
signature against the keys in the charter.
"""

import hashlib
import shutil
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, Literal

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite
from pydantic import BaseModel

from aggregators.secure_sum.sharing import UInt64, challenges, digest_of
from site_agent.errors import InvalidInputError, NotFoundError, PoolAnswerError
from site_agent.pool.resources.rounds import SecureSessions
from site_agent.pool.signing import load_key
from site_agent.secure.charter import Charter, require_accepted
from site_agent.secure.messages import Message, Post, sign_message
from site_agent.secure.session import Session, parse_descriptor
from site_agent.work.ledger import Ledger


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


_SUITE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.CHACHA20_POLY1305)


class Party:
    """One lab or server on one machine.

    Raises `InvalidInputError` if the charter was not accepted here, or does not name this party
    with its key, and `NotFoundError` if the folder has no key.

    `role`: ``servers`` or ``labs``.
    """

    role: ClassVar[Literal["servers", "labs"]]

    def __init__(
        self,
        folder: Path,
        name: str,
        charter: str,
        board: Board,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.folder, self.name, self.board, self.clock = folder, name, board, clock
        self.charter: Charter = require_accepted(folder, charter)
        self.ledger = Ledger(folder / "ledger.jsonl")
        key = load_key(folder, name)
        if key is None:
            raise NotFoundError(f"{folder}: no key of {name}", hint="poolctl secure keygen")
        self._key = key.key
        members = self.charter.servers if self.role == "servers" else self.charter.labs
        if members.get(name) != self._key.public:
            raise InvalidInputError(
                f"the {self.role} of the charter do not include {name!r} with the key in {folder}"
            )

    def review(self, session: str) -> Session:
        """Return the state of a session as the board shows it."""
        return read_session(self.board, session, self.charter)

    def secrets(self, session: str) -> Path:
        """Return the folder of a session's secrets."""
        folder = self.folder / "sessions" / session
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return folder

    def has_said(self, session: str, phase: str) -> bool:
        """Return whether the ledger has a message of this party."""
        return bool(self.ledger.find("post", session=session, phase=phase))

    def say(
        self, view: Session, phase: str, body: BaseModel, *, blob: Path | None = None, **facts: Any
    ) -> None:
        """Sign a message, write it to the ledger and post it.

        A message in the ledger is posted as it is; a phase never gets a second one.

        `blob`: A file to put on the board before the message. `facts`: The party's notes to keep
        with the message.
        """
        if not self.has_said(view.session, phase):
            message = Message(
                session=view.session,
                phase=phase,
                sender=self.name,
                transcript=view.transcripts.get(phase, view.session),
                seen=view.seen(phase),
                body=body.model_dump(mode="json"),
            )
            envelope = sign_message(message, self._key).decode()
            # Before it is sent: a party that was killed in between repeats these very bytes and
            # never signs a second message of the phase, which would convict it.
            self.ledger.append(
                {
                    "kind": "post",
                    "session": view.session,
                    "subject": view.descriptor.subject,
                    "phase": phase,
                    "envelope": envelope,
                    "blob": "" if blob is None else blob.name,
                    "facts": facts,
                }
            )
        self._send(view.session, phase)

    def resume(self, view: Session) -> None:
        """Post messages again that the board lost."""
        for entry in self.ledger.find("post", session=view.session):
            if not view.posted(entry["phase"], self.name):
                self._send(view.session, entry["phase"])

    def facts(self, session: str, phase: str) -> Mapping[str, Any]:
        """Return the facts remembered with a message."""
        facts: Mapping[str, Any] = self.ledger.find("post", session=session, phase=phase)[0][
            "facts"
        ]
        return facts

    def forget_secrets(self, session: str) -> None:
        """Delete a session's secrets."""
        shutil.rmtree(self.folder / "sessions" / session, ignore_errors=True)

    def _send(self, session: str, phase: str) -> None:
        entry = self.ledger.find("post", session=session, phase=phase)[0]
        blob = self.folder / "sessions" / session / entry["blob"]
        if blob.is_file():
            self.board.put_blob(session, self.name, blob)
        self.board.post(session, phase, self.name, entry["envelope"].encode())


def challenges_of(view: Session) -> list[UInt64]:
    """Return the challenge vectors, each of the size of the layout."""
    transcript = bytes.fromhex(view.transcripts["tag"])
    count = view.charter.terms.challenges
    return list(challenges(transcript, count, view.descriptor.layout.size))


def create_session_key() -> tuple[bytes, bytes]:
    """Return a private and a public key, 32 bytes each."""
    private = X25519PrivateKey.generate()
    return private.private_bytes_raw(), private.public_key().public_bytes_raw()


def seal_share(content: bytes, public: bytes, *context: bytes | str) -> bytes:
    """Return a seal that only the holder of the private key can open, in this context.

    Raises `ValueError` if the public key is not a point of the curve.
    """
    key = X25519PublicKey.from_public_bytes(public)
    return _SUITE.encrypt(content, key, info=digest_of(*context))


def open_share(sealed: bytes, private: bytes, *context: bytes | str) -> bytes:
    """Open a seal of `seal_share`.

    Raises `ValueError`: it was altered, or sealed to another key or in another context.
    """
    key = X25519PrivateKey.from_private_bytes(private)
    try:
        return _SUITE.decrypt(sealed, key, info=digest_of(*context))
    except InvalidTag as error:
        raise ValueError("the seal does not open") from error
