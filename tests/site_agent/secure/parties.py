"""Labs and servers of a test, each in a folder of its own, on a board in a folder."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from aggregators.models import NetworkContribution, StateDict, TensorInfo
from aggregators.secure_sum.layout import SumLayout, encode_network, network_layout
from aggregators.secure_sum.sharing import UInt64
from pool_server.wire.signatures.keys import Envelope, PrivateKey
from site_agent.pool.signing import create_key, load_key
from site_agent.secure.charter import Charter, accept_charter, create_charter
from site_agent.secure.lab import Lab
from site_agent.secure.messages import Message, Post, sign_message
from site_agent.secure.party import Board, read_session
from site_agent.secure.server import Server
from site_agent.secure.session import Session, new_descriptor
from site_agent.secure.sums import EncodedContribution
from tests.site_agent.secure.folder_board import FolderBoard

BASE_DIGEST = "ab" * 32
BASE = StateDict(
    {
        "weight": np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4),
        "steps": np.array(5, dtype=np.int64),
    },
    {"weight": TensorInfo("F32", (3, 4)), "steps": TensorInfo("I64", ())},
)
LAYOUT = network_layout(BASE, BASE_DIGEST)


def contribution(seed: int, samples: int = 10) -> NetworkContribution:
    """Return the update of a lab: differences of about 0.1."""
    change = np.random.default_rng(seed).normal(0, 0.1, (3, 4)).astype(np.float32)
    tensors = {"weight": change, "steps": np.array(9, dtype=np.int64)}
    return NetworkContribution(
        StateDict(tensors, BASE.infos), "differences", samples, BASE_DIGEST, {}
    )


@dataclass
class Clock:
    """A clock that tests set."""

    now: float = 1_000_000.0

    def __call__(self) -> float:
        return self.now

    def pass_hours(self, hours: float) -> None:
        self.now += hours * 3600


@dataclass
class Parties:
    """A charter's labs and servers; each can be given another board than the others."""

    folder: Path
    charter: Charter
    board: Board
    clock: Clock = field(default_factory=Clock)
    servers: dict[str, type[Server]] = field(default_factory=dict)
    """Those that misbehave."""

    def server(self, name: str, board: Board | None = None) -> Server:
        return self.servers.get(name, Server)(
            self.folder / name, name, self.charter.digest, board or self.board, clock=self.clock
        )

    def lab(self, name: str, board: Board | None = None) -> Lab:
        return Lab(
            self.folder / name, name, self.charter.digest, board or self.board, clock=self.clock
        )

    def key(self, name: str) -> PrivateKey:
        key = load_key(self.folder / name, name)
        assert key is not None
        return key.key

    def numbers(self, name: str) -> UInt64:
        number = list(self.charter.labs).index(name)
        return encode_network(LAYOUT, contribution(number, number + 1), BASE, self.charter.budget)

    def open(self, **changes: Any) -> str:
        descriptor = new_descriptor(self.charter, LAYOUT, self.clock.now, **changes)
        return self.board.open_session(descriptor.to_bytes())

    def serve(self, session: str, *names: str) -> None:
        """Let servers act in turn until none of them has anything more to do."""
        while True:
            before = len(self.board.posts(session))
            for name in names or tuple(self.charter.servers):
                self.server(name).act(session)
            if len(self.board.posts(session)) == before:
                return

    def share(self, session: str, *names: str, layout: SumLayout = LAYOUT) -> None:
        for name in names or tuple(self.charter.labs):
            assert self.lab(name).share(session, layout, self.numbers(name))

    def tag(self, session: str, *names: str) -> None:
        for name in names or tuple(self.charter.labs):
            self.lab(name).visit(session)

    def view(self, session: str) -> Session:
        return read_session(self.board, session, self.charter)

    def up_to(self, phase: str, session: str) -> None:
        """Bring a session to where `phase` is next."""
        steps: list[tuple[str, Callable[[], None]]] = [
            ("receipt", lambda: self.serve(session)),
            ("tag", lambda: (self.share(session), self.serve(session))),  # type: ignore[dict-item]
            ("complete", lambda: (self.tag(session), self.serve(session))),  # type: ignore[dict-item]
        ]
        for reached, step in steps:
            step()
            if reached == phase:
                return
        raise AssertionError(phase)

    def sum_of(self, inputs: Mapping[str, EncodedContribution], target: Path) -> Path:
        """Sum the encodings of some labs in one session, and write the first lab's verified sum."""
        layout = next(iter(inputs.values())).layout
        descriptor = new_descriptor(self.charter, layout, self.clock.now, labs=tuple(inputs))
        session = self.board.open_session(descriptor.to_bytes())
        self.serve(session)
        for name, entry in inputs.items():
            self.lab(name).approve_base(layout.base_digest)
            assert self.lab(name).share(session, entry.layout, entry.numbers)
        self.serve(session)
        self.tag(session, *inputs)
        self.serve(session)
        self.lab(next(iter(inputs))).finish(session, target)
        return target

    def reasons(self, session: str) -> set[str]:
        """Return why servers declared a session void."""
        payloads = [read_payload(x) for x in self.board.posts(session) if x.phase == "void"]
        return {json.loads(payload)["body"]["reason"] for payload in payloads}


def create_parties(
    folder: Path,
    *,
    servers: int = 3,
    labs: int = 4,
    board: Board | None = None,
    lab_prefix: str = "lab",
    **rules: Any,
) -> Parties:
    """Return a charter's parties, with the charter accepted and the base approved by all."""
    names = [f"server-{n}" for n in range(servers)], [f"{lab_prefix}-{n}" for n in range(labs)]
    keys = [
        {name: create_key(folder / name, name).key.public.text for name in group} for group in names
    ]
    charter = create_charter("test", *keys, **rules)
    parties = Parties(folder, charter, board or FolderBoard(folder / "board"))
    for name in [*names[0], *names[1]]:
        accept_charter(folder / name, charter, charter.digest)
    for name in names[1]:
        parties.lab(name).approve_base(BASE_DIGEST)
    return parties


class AlteringBoard:
    """A board that shows its posts to one party as a function changes them."""

    def __init__(self, board: Board, change: Callable[[list[Post]], list[Post]]) -> None:
        self._board, self._change = board, change

    def posts(self, session: str) -> list[Post]:
        return self._change(self._board.posts(session))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._board, name)


def read_payload(post: Post) -> bytes:
    return Envelope.model_validate_json(post.envelope).body()


def signed_again(post: Post, key: PrivateKey, **changes: Any) -> Post:
    """Return a post with a changed message, signed by `key`."""
    message = Message.model_validate_json(read_payload(post)).model_copy(update=changes)
    return Post(post.session, post.phase, post.sender, sign_message(message, key))
