"""The formats page: a verifier written from it alone, on real sums, damaged ones and a stored one.

`verify` shares no code with the program; the page was mended where it did not suffice.
"""

import base64
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aggregators.models import LeafContribution
from aggregators.secure_sum.layout import (
    SumLayout,
    encode_leaves,
    leaf_presence_layout,
    leaf_sums_layout,
)
from aggregators.secure_sum.sharing import UInt64
from site_agent.errors import InvalidInputError, NotFoundError, SecureSumError
from site_agent.pool.signing import create_key
from site_agent.secure.charter import Charter
from site_agent.secure.messages import Post
from site_agent.secure.session import Session, new_descriptor
from site_agent.secure.verification import verify_result
from tests.site_agent.secure.page_verifier import RefusedError, Verified, verify
from tests.site_agent.secure.parties import (
    BASE_DIGEST,
    LAYOUT,
    Parties,
    create_parties,
    read_payload,
    signed_again,
)

TRANSCRIPT = json.loads(Path(__file__).with_name("transcript.json").read_text())


@dataclass
class Given:
    """A verifier's inputs: a charter's file, a descriptor, posts, and files by their SHA-256."""

    charter: str
    descriptor: bytes
    posts: list[Post]
    files: dict[str, bytes]

    def checked(self, *, full: bool) -> Verified:
        posts = [(post.session, post.phase, post.sender, post.envelope) for post in self.posts]
        return verify(self.charter, self.descriptor, posts, self.files if full else None)

    def by_the_program(self, folder: Path) -> Verified:
        """Return the verdict of the program's own full verification."""
        charter = Charter.parse(self.charter.encode())
        written = verify_result(
            Session(self.descriptor, charter, self.posts), self, folder / "result", mode="full"  # type: ignore[arg-type]
        )  # fmt: skip
        faulty = tuple(name for fault in written.faults for name in fault.parties)
        return Verified([*written.labs], written.sum_digest, written.weight, faulty)

    def get_blob(self, session: str, digest: str, target: Path, most_bytes: int) -> None:
        if digest not in self.files:
            raise NotFoundError(digest)
        target.write_bytes(self.files[digest])

    def number(self, phase: str, sender: str) -> int:
        [place] = [
            n for n, post in enumerate(self.posts) if (post.phase, post.sender) == (phase, sender)
        ]
        return place

    def say(self, parties: Parties, phase: str, sender: str, **changes: Any) -> None:
        """Have a member sign another body in place of its own."""
        number = self.number(phase, sender)
        post = self.posts[number]
        body = {**json.loads(read_payload(post))["body"], **changes}
        self.posts[number] = signed_again(post, parties.key(sender), body=body)


def held(
    folder: Path, *, late: str = "", leaves: str = "", attempt: int = 1, **rules: Any
) -> tuple[Parties, Given]:
    """Hold a sum of at least three labs, and return the files and posts of its board."""
    parties = create_parties(folder, **rules)
    labs = [name for name in parties.charter.labs if name != late]
    if not leaves:
        numbers = {name: parties.numbers(name) for name in labs}
        return parties, summed(parties, LAYOUT, numbers, late=bool(late), attempt=attempt)
    generator = np.random.default_rng(5)
    counts = generator.integers(0, 3, (len(labs), 13)).astype("u4")
    counts[:, 4] = 2
    changes = generator.normal(0, 0.02, (len(labs), 13, 4, 2)).astype("f4")
    changes[counts == 0] = 0
    changes_of = {
        name: LeafContribution(*lab, BASE_DIGEST, {})
        for name, lab in zip(labs, zip(changes, counts, strict=True), strict=True)
    }
    layout = leaf_presence_layout(changes_of["lab-0"])
    budget = parties.charter.budget
    numbers = {name: encode_leaves(layout, item, budget) for name, item in changes_of.items()}
    transcript = summed(parties, layout, numbers)
    if leaves == "sums":  # a lab gives them after a sum of presence only
        layout = leaf_sums_layout(layout, (counts > 0).sum(0), len(labs))
        numbers = {name: encode_leaves(layout, item, budget) for name, item in changes_of.items()}
        transcript = summed(parties, layout, numbers)
    return parties, transcript


def summed(
    parties: Parties,
    layout: SumLayout,
    numbers: Mapping[str, UInt64],
    *,
    late: bool = False,
    attempt: int = 1,
) -> Given:
    """Hold one session, in which not all labs of the charter may come in time."""
    descriptor = new_descriptor(
        parties.charter, layout, parties.clock.now, attempt=attempt, purpose="a test"
    ).to_bytes()
    session = parties.board.open_session(descriptor)
    parties.serve(session)
    for name, number in numbers.items():
        assert parties.lab(name).share(session, layout, number)
    parties.clock.pass_hours(49 if late else 0)
    parties.serve(session)
    parties.tag(session, *numbers)
    parties.serve(session)
    blobs = (parties.folder / "board" / session / "blobs").iterdir()
    files = {path.name: path.read_bytes() for path in blobs}
    charter = parties.charter.content.decode()
    return Given(charter, descriptor, parties.board.posts(session), files)


@pytest.mark.parametrize(
    "kind",
    [
        {"servers": 2, "labs": 3},
        {"servers": 3, "labs": 4},
        {"servers": 5, "labs": 3},
        {"servers": 2, "labs": 7},
        {"labs": 4, "late": "lab-1"},
        {"challenges": 1},
        {"fraction_bits": 16, "magnitude_bits": 4, "weight_bits": 8, "challenges": 5},
        {"attempt": 2, "lab_hours": 1.5, "server_hours": 3},
        {"leaves": "presence"},
        {"leaves": "sums"},
    ],
    ids=str,
)
def test_the_verifier_accepts_what_the_program_sums(folder: Path, kind: dict[str, Any]) -> None:
    _, transcript = held(folder, **{"servers": 2, "labs": 3, "least_labs": 3, **kind})
    verified = transcript.checked(full=True)
    assert verified == transcript.checked(full=False) == transcript.by_the_program(folder)
    assert len(verified.labs) == kind.get("labs", 3) - ("late" in kind)


Damage = Callable[[Parties, Given], None]


def flip_a_signature(parties: Parties, transcript: Given) -> None:
    number = transcript.number("commit", "server-0")
    envelope = json.loads(transcript.posts[number].envelope)
    signature = bytearray(base64.b64decode(envelope["signatures"][0]["sig"]))
    signature[9] ^= 4
    envelope["signatures"][0]["sig"] = base64.b64encode(signature).decode()
    transcript.posts[number] = replace(
        transcript.posts[number], envelope=json.dumps(envelope).encode()
    )


def put_off_a_deadline(parties: Parties, transcript: Given) -> None:
    """The posts say another session then, so that they are signed again."""
    about = json.loads(transcript.descriptor)
    about["deadlines"]["tag"] += 3600
    transcript.descriptor = json.dumps(about).encode()
    session = hashlib.sha256(transcript.descriptor).hexdigest()
    transcript.posts = [
        replace(signed_again(post, parties.key(post.sender), session=session), session=session)
        for post in transcript.posts
    ]


def exchange_a_key(parties: Parties, transcript: Given) -> None:
    other = create_key(parties.folder / "other", "other").key.public.text
    transcript.charter = transcript.charter.replace(parties.key("lab-0").public.text, other)


def sign_twice(parties: Parties, transcript: Given) -> None:
    post = transcript.posts[transcript.number("check", "server-1")]
    transcript.posts.append(signed_again(post, parties.key("server-1"), body={"values": [1, 2, 3]}))


def lower_a_tag(parties: Parties, transcript: Given) -> None:
    transcript.say(parties, "tag", "lab-2", values=[0, 0, 0])


def forget_a_lab(parties: Parties, transcript: Given) -> None:
    for name in ("server-0", "server-1"):
        received = json.loads(read_payload(transcript.posts[transcript.number("receipt", name)]))[
            "body"
        ]
        received["received"].pop("lab-3")
        transcript.say(parties, "receipt", name, **received)


def lose_a_share(parties: Parties, transcript: Given) -> None:
    del transcript.posts[transcript.number("share", "lab-1")]


def open_something_else(parties: Parties, transcript: Given) -> None:
    """One number more, with a message to it that its server signed."""
    body = json.loads(read_payload(transcript.posts[transcript.number("opening", "server-0")]))[
        "body"
    ]
    content = bytearray(transcript.files[body["blob"]])
    content[0] ^= 1
    digest = hashlib.sha256(content).hexdigest()
    transcript.files[digest] = bytes(content)
    transcript.say(parties, "opening", "server-0", blob=digest)


def damage_a_file(parties: Parties, transcript: Given) -> None:
    body = json.loads(read_payload(transcript.posts[transcript.number("opening", "server-1")]))[
        "body"
    ]
    transcript.files[body["blob"]] += bytes(8)


def post_as_another(parties: Parties, transcript: Given) -> None:
    number = transcript.number("tag", "lab-0")
    transcript.posts[number] = replace(transcript.posts[number], sender="lab-1")


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (flip_a_signature, "server-0 signed 0 messages"),
        (put_off_a_deadline, "the deadlines are not the charter's"),
        (exchange_a_key, "another charter"),
        (sign_twice, "server-1 signed 2 messages"),
        (lower_a_tag, "check: server-0 saw something else"),
        (forget_a_lab, "commit: server-0 saw something else"),
        (lose_a_share, "the share message of lab-1 is missing"),
        (open_something_else, "server-0 committed to another"),
        (damage_a_file, "the opening of server-1 is another file"),
        (post_as_another, "lab-0 signed 0 messages"),
    ],
)
def test_both_refuse_a_damaged_sum(folder: Path, damage: Damage, reason: str) -> None:
    parties, transcript = held(folder, servers=2, labs=4, least_labs=3)
    assert transcript.checked(full=True).sum
    damage(parties, transcript)
    with pytest.raises(RefusedError, match=reason):
        transcript.checked(full=True)
    with pytest.raises((InvalidInputError, SecureSumError)):
        transcript.by_the_program(folder)


def test_a_server_that_signs_another_result_is_named_and_the_sum_stands(folder: Path) -> None:
    parties, transcript = held(folder, servers=2, labs=3)
    sound = transcript.checked(full=True)
    transcript.say(parties, "result", "server-1", weight=7)
    verified = transcript.checked(full=True)
    assert verified == sound._replace(faulty=("server-1",)) == transcript.by_the_program(folder)
    with pytest.raises(RefusedError, match="results differ"):
        transcript.checked(full=False)


def test_the_stored_transcript_has_the_stored_values() -> None:
    session = hashlib.sha256(TRANSCRIPT["descriptor"].encode()).hexdigest()
    posts = [
        Post(session, post["phase"], post["sender"], post["envelope"].encode())
        for post in TRANSCRIPT["posts"]
    ]
    files = {name: base64.b64decode(file) for name, file in TRANSCRIPT["files"].items()}
    transcript = Given(TRANSCRIPT["charter"], TRANSCRIPT["descriptor"].encode(), posts, files)
    expected = Verified(TRANSCRIPT["roster"], TRANSCRIPT["sum"], TRANSCRIPT["weight"])
    assert transcript.checked(full=True) == transcript.checked(full=False) == expected
    charter = Charter.parse(transcript.charter.encode())
    assert charter.digest == TRANSCRIPT["charter_digest"]
    view = Session(transcript.descriptor, charter, posts)
    assert (view.session, view.phase) == (TRANSCRIPT["session"], "complete")
    assert view.transcripts == TRANSCRIPT["transcripts"]
