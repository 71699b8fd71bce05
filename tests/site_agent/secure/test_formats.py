"""The formats page: a verifier written from it alone, on a stored transcript and damaged copies.

`verify` shares no code with the program. It was written from ``site_agent/secure/FORMATS.md``, and
the page was mended where that did not suffice.
"""

from __future__ import annotations

import base64
import contextlib
import copy
import hashlib
import json
import math
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from site_agent.errors import InvalidInputError
from site_agent.secure.charter import Charter
from site_agent.secure.messages import Post
from site_agent.secure.session import Session

TRANSCRIPT = json.loads(Path(__file__).with_name("transcript.json").read_text())
P = 2**61 - 1
SIZES = {"F16": 2, "BF16": 2, "F32": 4, "F64": 8}
PHASES = ("keys", "receipt", "commit", "tag", "check", "opening")
BEFORE = {"receipt": "keys", "commit": "receipt", "tag": "commit", "check": "tag",
          "opening": "check"}  # fmt: skip


class RejectedError(Exception):
    """Why there is no sum."""


def require(good: bool, why: str) -> None:
    if not good:
        raise RejectedError(why)


def d(*parts: bytes | str | int) -> bytes:
    whole = hashlib.sha256()
    for part in parts:
        content = part if isinstance(part, bytes) else str(part).encode()
        whole.update(len(content).to_bytes(8, "big") + content)
    return whole.digest()


def r(key: bytes, count: int) -> list[int]:
    stream, found = Cipher(algorithms.AES256(key), modes.CTR(bytes(16))).encryptor(), []
    while len(found) < count:
        word = int.from_bytes(stream.update(bytes(8)), "little") & P
        found += [word] if word != P else []
    return found


def k(secret: bytes, *parts: bytes | str | int) -> bytes:
    return HKDF(SHA256(), 32, None, d(*parts)).derive(secret)


def words(content: bytes, count: int) -> list[int]:
    require(len(content) == 8 * count, "an opening of another length")
    found = [int.from_bytes(content[at : at + 8], "little") for at in range(0, 8 * count, 8)]
    require(max(found) < P, "a word beyond p")
    return found


def read_charter(text: str) -> tuple[dict[str, Any], str]:
    defaults = {"challenges": 3, "fraction_bits": 24, "magnitude_bits": 8, "weight_bits": 16,
                "lab_bits": 10, "lab_hours": 48.0, "server_hours": 24.0}  # fmt: skip
    terms = defaults | tomllib.loads(text)
    for name in ("lab_hours", "server_hours"):
        terms[name] = float(terms[name])
    canonical = json.dumps(terms, sort_keys=True, ensure_ascii=True)
    return terms, hashlib.sha256(canonical.encode()).hexdigest()


def signed(post: dict[str, str], session: str, keys: dict[str, str]) -> tuple[Any, str] | None:
    """Return a post's message with its digest, or None where it is nobody's."""
    phase, sender = post["phase"], post["sender"]
    if sender not in keys:
        return None
    envelope = json.loads(post["envelope"])
    kind = f"application/vnd.poolctl.secure-sum.{phase}+json"
    payload = base64.b64decode(envelope["payload"])
    wrapped = b"DSSEv1 %d %s %d %s" % (len(kind), kind.encode(), len(payload), payload)
    key = Ed25519PublicKey.from_public_bytes(base64.b64decode(keys[sender]))
    try:
        key.verify(base64.b64decode(envelope["signatures"][0]["sig"]), wrapped)
    except InvalidSignature:
        return None
    message = json.loads(payload)
    here = (session, phase, sender) == tuple(message[x] for x in ("session", "phase", "sender"))
    if envelope["payloadType"] != kind or not here:
        return None
    return message, hashlib.sha256(payload).hexdigest()


def verify(given: dict[str, Any]) -> tuple[str, int, list[str]]:
    """Return digest and weight of the sum, and the roster; or raise `RejectedError`."""
    charter, charter_digest = read_charter(given["charter"])
    session = hashlib.sha256(given["descriptor"].encode()).hexdigest()
    descriptor = json.loads(given["descriptor"])
    require(descriptor["charter"] == charter_digest, "another charter")
    times = descriptor["deadlines"]
    lab_s, server_s = charter["lab_hours"] * 3600, charter["server_hours"] * 3600
    for early, late, wanted in (("share", "commit", server_s), ("commit", "tag", lab_s),
                                ("tag", "open", server_s), ("open", "answer", lab_s)):  # fmt: skip
        require(abs(times[late] - times[early] - wanted) <= 1, "other deadlines than the charter's")
    labs = {each["name"]: each["key"] for each in charter["labs"]}
    servers = {each["name"]: each["key"] for each in charter["servers"]}
    posts: dict[tuple[str, str], dict[str, Any]] = {}
    for post in given["posts"]:
        by_labs = post["phase"] in ("share", "tag", "answer")
        found = signed(post, session, labs if by_labs else servers)
        if found is not None:
            posts.setdefault((post["phase"], post["sender"]), {})[found[1]] = found[0]
    transcript, roster, done = session, {}, {}
    tag_transcript = b""
    for phase in PHASES:
        senders = sorted(roster) if phase == "tag" else list(servers)
        messages = {}
        for sender in senders:
            mine = posts.get((phase, sender), {})
            require(len(mine) == 1, f"{phase}: {len(mine)} messages of {sender}")
            [(digest, message)] = mine.items()
            require(message["transcript"] == transcript, f"{phase}: {sender} saw something else")
            if phase in BEFORE:
                before = {name: each[0] for name, each in done[BEFORE[phase]].items()}
                require(message["seen"] == before, f"{phase}: {sender} saw other messages")
            messages[sender] = (digest, message["body"])
        done[phase] = messages
        pairs = [part for name in sorted(messages) for part in (name, messages[name][0])]
        if phase == "receipt":
            roster = find_roster(descriptor["labs"], messages, posts, transcript, session, servers)
            require(len(roster) >= charter["least_labs"], "too few labs")
            pairs += [part for pair in sorted(roster.items()) for part in pair]
        if phase == "tag":
            tag_transcript = bytes.fromhex(transcript)
        transcript = d("transcript", transcript, phase, *pairs).hex()
    return add_up(given, charter, descriptor, done, roster, tag_transcript, session)


def find_roster(  # noqa: PLR0917
    invited: list[str], receipts: dict[str, Any], posts: Any, transcript: str, session: str,
    servers: dict[str, str],
) -> dict[str, str]:  # fmt: skip
    roster = {}
    for lab in invited:
        digests = {body["received"].get(lab) for _, body in receipts.values()}
        [digest] = digests if len(digests) == 1 else [None]
        if digest is None:
            continue
        message = posts.get(("share", lab), {}).get(digest)
        require(message is not None, f"the share of {lab} is missing")
        number = int.from_bytes(d("explicit share", session, lab), "big") % len(servers)
        explicit, body = list(servers)[number], message["body"]
        good = message["transcript"] == transcript and body["server"] == explicit
        if good and set(body["seeds"]) == set(servers) - {explicit}:
            roster[lab] = digest
    return roster


def add_up(  # noqa: PLR0917
    given: dict[str, Any], charter: dict[str, Any], descriptor: dict[str, Any], done: Any,
    roster: dict[str, str], tag_transcript: bytes, session: str,
) -> tuple[str, int, list[str]]:  # fmt: skip
    layout, count = descriptor["layout"], charter["challenges"]
    assert layout["kind"] == "network"
    values = sum(math.prod(e["shape"]) for e in layout["entries"] if e["dtype"] in SIZES)
    size = values + 1
    chi = [r(k(tag_transcript, "challenge", number), size) for number in range(count)]

    def checks(numbers: list[int]) -> list[int]:
        return [
            (sum(a * b for a, b in zip(chi[n], numbers, strict=False)) + numbers[size + n]) % P
            for n in range(count)
        ]

    def totals(phase: str) -> list[int]:
        return [
            sum(column) % P
            for column in zip(*(body["values"] for _, body in done[phase].values()), strict=True)
        ]

    require(totals("tag") == totals("check"), "the check values differ")
    total = [0] * (size + count)
    for server, (_, body) in done["opening"].items():
        content = base64.b64decode(given["files"].get(body["blob"], ""))
        require(hashlib.sha256(content).hexdigest() == body["blob"], "another opening")
        numbers = words(content, size + count)
        opener = bytes.fromhex(body["opener"])
        made = d("commitment", session, d(*sorted(roster)), server, opener, content).hex()
        require(made == done["commit"][server][1]["commitment"], f"{server} opened something else")
        require(
            checks(numbers) == done["check"][server][1]["values"], f"{server} lied in its check"
        )
        total = [(a + b) % P for a, b in zip(total, numbers, strict=True)]
    total = total[:size]
    signed_values = [each - P if each > P // 2 else each for each in total]
    weight, bits = signed_values[-1], charter["fraction_bits"] + charter["magnitude_bits"]
    require(len(roster) <= weight <= len(roster) * 2 ** charter["weight_bits"], "the weight")
    most = weight * 2**bits + len(roster)
    require(max(map(abs, signed_values[:-1])) <= most, "a value out of range")
    content = b"".join(each.to_bytes(8, "little") for each in total)
    return hashlib.sha256(content).hexdigest(), weight, sorted(roster)


def payload_of(post: dict[str, str]) -> Any:
    return json.loads(base64.b64decode(json.loads(post["envelope"])["payload"]))


def damaged() -> Iterator[tuple[str, Callable[[dict[str, Any]], None]]]:
    """Yield ways to damage a transcript without any member's key."""

    def of(given: dict[str, Any], phase: str, number: int = 0) -> dict[str, str]:
        return [each for each in given["posts"] if each["phase"] == phase][number]

    def forge(phase: str, change: Callable[[Any], None]) -> Callable[[dict[str, Any]], None]:
        def alter(given: dict[str, Any]) -> None:
            post = of(given, phase)
            envelope, message = json.loads(post["envelope"]), payload_of(post)
            change(message)
            envelope["payload"] = base64.b64encode(json.dumps(message).encode()).decode()
            post["envelope"] = json.dumps(envelope)

        return alter

    def flip(given: dict[str, Any]) -> None:
        digest = next(iter(given["files"]))
        content = bytearray(base64.b64decode(given["files"][digest]))
        content[3] ^= 1
        given["files"][digest] = base64.b64encode(bytes(content)).decode()

    def swap(given: dict[str, Any]) -> None:
        first, second = given["files"]
        given["files"][first], given["files"][second] = given["files"][second], ""

    yield "a tag changed", forge("tag", lambda m: m["body"]["values"].__setitem__(0, 1))
    yield "a commitment changed", forge("commit", lambda m: m["body"].update(commitment="0" * 64))
    yield "a receipt changed", forge("receipt", lambda m: m["body"]["received"].popitem())
    yield "an opener changed", forge("opening", lambda m: m["body"].update(opener="0" * 64))
    yield "a share missing", lambda given: given["posts"].remove(of(given, "share"))
    yield "a check missing", lambda given: given["posts"].remove(of(given, "check", 1))
    yield "an opening flipped", flip
    yield "openings exchanged", swap
    yield (
        "another purpose",
        lambda g: g.update(descriptor=g["descriptor"].replace("a test vector", "a best vector")),
    )
    yield (
        "another charter",
        lambda g: g.update(charter=g["charter"].replace("least_labs = 3", "least_labs = 4")),
    )
    yield "a lab's post as another's", lambda g: of(g, "tag").update(sender="lab-1")


def test_a_verifier_of_the_page_accepts_the_stored_transcript() -> None:
    digest, weight, roster = verify(TRANSCRIPT)
    assert (digest, weight, roster) == (
        TRANSCRIPT["sum"], TRANSCRIPT["weight"], TRANSCRIPT["roster"]
    )  # fmt: skip
    assert read_charter(TRANSCRIPT["charter"])[1] == TRANSCRIPT["charter_digest"]


def test_the_program_computes_the_stored_values() -> None:
    charter = Charter.parse(TRANSCRIPT["charter"].encode())
    assert charter.digest == TRANSCRIPT["charter_digest"]
    view = program_view(TRANSCRIPT)
    assert (view.session, view.phase) == (TRANSCRIPT["session"], "complete")
    assert view.transcripts == TRANSCRIPT["transcripts"]


@pytest.mark.parametrize(("name", "damage"), list(damaged()))
def test_both_refuse_a_damaged_transcript(
    name: str, damage: Callable[[dict[str, Any]], None]
) -> None:
    given = copy.deepcopy(TRANSCRIPT)
    damage(given)
    with pytest.raises(RejectedError):
        verify(given)
    if "opening" in name and "missing" not in name:
        return  # files, which the program reads from a board (test_attacks)
    with contextlib.suppress(InvalidInputError, ValueError):  # or not even a session
        assert program_view(given).phase != "complete"


def program_view(given: dict[str, Any]) -> Session:
    charter = Charter.parse(given["charter"].encode())
    session = hashlib.sha256(given["descriptor"].encode()).hexdigest()
    posts = [
        Post(session, each["phase"], each["sender"], each["envelope"].encode())
        for each in given["posts"]
    ]
    return Session(given["descriptor"].encode(), charter, posts)
