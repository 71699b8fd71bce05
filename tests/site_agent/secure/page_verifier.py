"""A verifier of secure sums, written from ``site_agent/secure/FORMATS.md`` alone.

It shares no code with the program, and its author had not read the program.
"""

import base64
import hashlib
import json
import math
import tomllib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

P = 2**61 - 1
DEFAULTS = {
    "challenges": 3, "fraction_bits": 24, "magnitude_bits": 8, "weight_bits": 16, "lab_bits": 10,
    "lab_hours": 48.0, "server_hours": 24.0,
}  # fmt: skip
PHASES = ("keys", "receipt", "commit", "tag", "check", "opening", "result")
BODIES = {
    "keys": {"hpke"}, "receipt": {"received", "refused"}, "commit": {"commitment"},
    "tag": {"values"}, "check": {"values"}, "opening": {"blob", "opener"},
    "result": {"sum", "labs", "weight", "file"},
}  # fmt: skip
Q25519 = 2**255 - 19
_Y8 = 0x7A03AC9277FDC74EC6CC392CFA53202A0F67100D760B3CBA4FD84D3D706A17C7
SMALL_ORDER = {0, 1, Q25519 - 1, _Y8, Q25519 - _Y8}
"""The y coordinates of the points of order 1, 2, 4 and 8 on the curve of Ed25519."""


Messages = dict[tuple[str, str], dict[str, Any]]
"""By phase and sender: the payloads by their digests."""


class RefusedError(Exception):
    """Why there is no sum."""


class Verified(NamedTuple):
    """A sum; `faulty` are servers that signed another result than all openings give."""

    labs: list[str]
    sum: str
    weight: int
    faulty: tuple[str, ...] = ()


def require(holds: bool, reason: str) -> None:
    if not holds:
        raise RefusedError(reason)


def d(*parts: bytes | str | int) -> bytes:
    whole = hashlib.sha256()
    for part in parts:
        content = part if isinstance(part, bytes) else str(part).encode()
        whole.update(len(content).to_bytes(8, "big") + content)
    return whole.digest()


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def r(key: bytes, count: int) -> list[int]:
    source, numbers = Cipher(algorithms.AES256(key), modes.CTR(bytes(16))).encryptor(), []
    while len(numbers) < count:
        word = int.from_bytes(source.update(bytes(8)), "little") & P
        numbers += [word] if word != P else []
    return numbers


def k(secret: bytes, *parts: bytes | str | int) -> bytes:
    return HKDF(SHA256(), 32, None, d(*parts)).derive(secret)


def read_charter(text: str) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Return the fields of a charter, and each member's key."""
    rules = DEFAULTS | tomllib.loads(text)
    rules |= {name: float(rules[name]) for name in ("lab_hours", "server_hours")}
    bits = sum(rules[f"{name}_bits"] for name in ("fraction", "magnitude", "weight", "lab"))
    require(rules["least_labs"] >= 3 and bits <= 59, "the charter's numbers are out of range")
    members = [*rules["servers"], *rules["labs"]]
    keys = {member["name"]: base64.b64decode(member["key"]) for member in members}
    require(len(members) == len(keys) == len(set(keys.values())), "members share a name or key")
    for name, key in keys.items():
        y = int.from_bytes(key, "little") % 2**255 % Q25519
        require(y not in SMALL_ORDER, f"the key of {name} has a small order")
    return rules, keys


def read_descriptor(content: bytes, rules: Mapping[str, Any]) -> tuple[dict[str, Any], int, int]:
    """Return a descriptor, its number of groups and how many values a group has."""
    descriptor, canonical = json.loads(content), json.dumps(rules, sort_keys=True).encode()
    require(descriptor["charter"] == sha256(canonical), "the descriptor names another charter")
    require({*descriptor["labs"]} <= {lab["name"] for lab in rules["labs"]}, "a lab is unknown")
    times = [descriptor["deadlines"][name] for name in ("share", "commit", "tag", "open", "answer")]
    hours = [rules["server_hours"], rules["lab_hours"]] * 2
    for begin, end, expected in zip(times, times[1:], hours, strict=False):
        require(abs(end - begin - 3600 * expected) <= 1, "the deadlines are not the charter's")
    layout = descriptor["layout"]
    floats = [e["shape"] for e in layout["entries"] if e["dtype"] in ("F16", "BF16", "F32", "F64")]
    bits = "".join(f"{byte:08b}" for byte in base64.b64decode(layout["kept"]))
    groups, values = {
        "network": (1, sum(math.prod(shape) for shape in floats)),
        "leaf-presence": (layout["leaves"], 0),
        "leaf-sums": (bits[: layout["leaves"]].count("1"), 2 * layout["parts"]),
    }[layout["kind"]]
    require(0 < groups * values + groups <= 2**28, "the vector's size is out of range")
    return descriptor, groups, values


def read_post(session: str, phase: str, sender: str, envelope: bytes, key: bytes) -> dict[str, Any]:
    """Return the payload of a post by its digest; empty where it is nobody's."""
    kind = f"application/vnd.poolctl.secure-sum.{phase}+json"
    try:
        outer = json.loads(envelope)
        payload = base64.b64decode(outer["payload"])
        text = b"DSSEv1 %d %s %d %s" % (len(kind), kind.encode(), len(payload), payload)
        signed = any(_is_signed(key, signature["sig"], text) for signature in outer["signatures"])
        said = json.loads(payload)
        about = said["session"], said["phase"], said["sender"], outer["payloadType"]
        exact = set(said) == {"session", "phase", "sender", "transcript", "seen", "body"}
    except (ValueError, KeyError, TypeError):
        return {}
    is_own = signed and exact and about == (session, phase, sender, kind)
    return {sha256(payload): said} if is_own else {}


def _is_signed(key: bytes, signature: str, text: bytes) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(base64.b64decode(signature), text)
    except InvalidSignature:
        return False
    return True


def verify(
    charter: str,
    descriptor: bytes,
    posts: Iterable[tuple[str, str, str, bytes]],
    files: Mapping[str, bytes] | None = None,
) -> Verified:
    """Return the sum of a session, or raise `RefusedError`; without `files`, believe the servers.

    Posts are (session, phase, sender, envelope), files the openings by their SHA-256.
    """
    rules, keys = read_charter(charter)
    session = sha256(descriptor)
    about, groups, width = read_descriptor(descriptor, rules)
    servers, count = [server["name"] for server in rules["servers"]], rules["challenges"]
    messages: Messages = {}
    for named, phase, sender, envelope in posts:
        by_lab = phase in ("share", "tag", "answer")
        if named == session and sender in keys and by_lab != (sender in servers):
            post = read_post(session, phase, sender, envelope, keys[sender])
            messages.setdefault((phase, sender), {}).update(post)

    now, roster, secret = session, {}, ""
    bodies: dict[str, dict[str, Any]] = {}
    for phase in PHASES if files is None else PHASES[:-1]:
        parts, bodies[phase], secret = [], {}, now if phase == "tag" else secret
        for sender in sorted(roster if phase == "tag" else servers):
            mine = messages.get((phase, sender), {})
            require(len(mine) == 1, f"{phase}: {sender} signed {len(mine)} messages")
            [(digest, message)] = mine.items()
            require(message["transcript"] == now, f"{phase}: {sender} saw something else")
            body = bodies[phase][sender] = message["body"]
            values = body.get("values", [0] * count)
            fits = len(values) == count and all(0 <= value < P for value in values)
            require(fits and set(body) == BODIES[phase], f"{phase}: body of {sender}")
            parts += [sender, digest]
        if phase == "receipt":
            roster = find_roster(about["labs"], bodies[phase], messages, session, now, servers)
            require(len(roster) >= rules["least_labs"], f"only {len(roster)} labs")
            parts += [part for pair in sorted(roster.items()) for part in pair]
        now = d("transcript", now, phase, *parts).hex()
    tags, checks = (
        [sum(column) % P for column in zip(*(b["values"] for b in item.values()), strict=True)]
        for item in (bodies["tag"], bodies["check"])
    )
    require(tags == checks, "tags and checks do not add up to the same")
    labs = sorted(roster)
    if files is None:
        first, *others = bodies["result"].values()
        require(all(other == first for other in others), "the servers' results differ")
        require(sorted(first["labs"]) == labs, "the results name other labs")
        return Verified(labs, first["sum"], first["weight"])

    size = groups * width + groups
    chi = [r(k(bytes.fromhex(secret), "challenge", number), size) for number in range(count)]
    total = [0] * size
    for server in servers:
        body = bodies["opening"][server]
        content, opener = files.get(body["blob"], b""), bytes.fromhex(body["opener"])
        require(sha256(content) == body["blob"], f"the opening of {server} is another file")
        made = d("commitment", session, d(*labs), server, opener, content).hex()
        require(made == bodies["commit"][server]["commitment"], f"{server} committed to another")
        steps = range(0, len(content), 8)
        opened = [int.from_bytes(content[at : at + 8], "little") for at in steps]
        fits = len(content) == 8 * (size + count) and max(opened) < P
        require(fits, f"the opening of {server} has another length, or a word that is not below p")
        pairs = zip(chi, opened[size:], strict=True)
        post = [(sum(map(int.__mul__, row, opened)) + mask) % P for row, mask in pairs]
        require(post == bodies["check"][server]["values"], f"the check of {server} is wrong")
        total = [(a + b) % P for a, b in zip(total, opened[:size], strict=True)]

    plain = [item - P if item > P // 2 else item for item in total]
    values, weights = plain[: groups * width], plain[groups * width :]
    least = len(labs) if about["layout"]["kind"] == "network" else 0
    good = least <= min(weights) and 0 < max(weights) <= len(labs) << rules["weight_bits"]
    require(good, "a weight is out of range")
    shift = rules["fraction_bits"] + rules["magnitude_bits"]
    most = [(weights[at // width] << shift) + len(labs) for at in range(len(values))]
    require(all(abs(x) <= y for x, y in zip(values, most, strict=True)), "a value is too large")
    made = sha256(b"".join(item.to_bytes(8, "little") for item in total)), sum(weights)
    results = ((server, messages.get(("result", server), {}).values()) for server in servers)
    signed_by = [(server, item["body"]) for server, signed in results for item in signed]
    stated = [(server, (x["sum"], x["weight"], sorted(x["labs"]))) for server, x in signed_by]
    return Verified(labs, made[0], made[1], tuple(item for item, x in stated if x != (*made, labs)))


def find_roster(  # noqa: PLR0917
    invited: list[str], receipts: Mapping[str, Any], messages: Messages, session: str, now: str,
    servers: list[str],
) -> dict[str, str]:  # fmt: skip
    """Return the labs that are summed, with the digests of their messages."""
    roster = {}
    for lab in invited:
        named = {receipt["received"].get(lab) for receipt in receipts.values()}
        if len(named) > 1 or None in named:
            continue
        [digest] = named
        share = messages.get(("share", lab), {}).get(digest)
        require(share is not None, f"the share message of {lab} is missing")
        drawn = int.from_bytes(d("explicit share", session, lab), "big") % len(servers)
        body, others = share["body"], {*servers} - {servers[drawn]}
        explicit = body["server"] == servers[drawn] and set(body["seeds"]) == others
        if share["transcript"] == now and explicit:
            roster[lab] = digest
    return roster
