"""A walk along all routes with every kind of token, past things that are there for others only.

Each thing is paired with one that never was. For outsiders the two answers are the same, and no
request of theirs changes a row.
"""

import hashlib
import re
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import update

from aggregators.formats import encode_model
from pool_server.database.records import TokenRecord, now_utc
from tests.pool_server.merges.merge_driver import recipe_of
from tests.pool_server.model_files import network_bytes
from tests.pool_server.people.sites.permission_matrix import BODIES, MATRIX, SITE
from tests.pool_server.people.sites.permission_subjects import FOREST_SEED, Subjects
from tests.pool_server.pool_driver import PoolDriver, pool_in_process, upload
from tests.pool_server.rounds.round_driver import base_model
from tests.pool_server.transfers.test_recipes import recipe_for

FOREIGN, SUSPENDED = "walk-foreign", "walk-suspended"
# A word that is in every hidden name, so that no answer may have it that was not asked for it.
CANARY = "canary"
HIDDEN = tuple(f"{CANARY}-{kind}" for kind in ("private", "draft", "quarantined", "withdrawn"))
NEVER = "never-was"
# This caller tries every hidden object; the others try one of each sort.
THOROUGH = f"{FOREIGN} contributor"
# Routes that need no token: those of which the table says that nobody gets an answer.
OPEN = {route for route, row in MATRIX.items() if 200 <= row[0] < 300}
# Rows that requests of outsiders may add or change: what they tried, and when they came.
_TRACES = {"audit", "sqlite_sequence"}


@dataclass(frozen=True)
class Pair:
    """Something hidden, and something that never was: values of a path, or a body."""

    there: Mapping[str, Any]
    absent: Mapping[str, Any]
    body: tuple[dict[str, Any], dict[str, Any]] | None = None


NOTHING = Pair({}, {})


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PoolDriver]:
    """A pool of its own: the rows of the shared one change all the time."""
    with pool_in_process(tmp_path_factory.mktemp("walk"), central_merges=True) as driver:
        yield driver


@pytest.fixture(scope="module")
def outsiders(pool: PoolDriver) -> dict[str, str | None]:
    """Tokens of all callers without access to the things of `SITE`."""
    results: dict[str, str | None] = {"nobody": None, "unknown": "pool_" + "A" * 43}
    for role in ("viewer", "contributor", "curator", "admin"):
        results[f"{FOREIGN} {role}"] = pool.secret(FOREIGN, role)
    results["suspended"] = pool.secret(SUSPENDED, "admin")

    def make(name: str, **fields: Any) -> dict[str, Any]:
        request = {"site": FOREIGN, "name": name, **fields}
        answer = pool.admin.post("/api/v1/tokens", json=request)
        assert answer.status_code == 201, answer.text
        made: dict[str, Any] = answer.json()
        results[name] = made["secret"]
        return made

    make("wide-viewer", role="viewer", pool_wide=True)
    make("narrow", role="admin", scopes=["models:read", "rounds"])
    expired, revoked = make("expired", role="admin"), make("revoked", role="admin")
    pool.admin.delete(f"/api/v1/tokens/{revoked['token_id']}").raise_for_status()
    for user in ("ada", "eve"):
        invited = {"site": FOREIGN, "role": "contributor"}
        secret = pool.admin.post("/api/v1/invitations", json=invited).json()["secret"]
        accepted = pool.client(None).post(
            "/api/v1/invitations/accept", json={"secret": secret, "name": user}
        )
        results[f"user {user}"] = accepted.json()["secret"]
    for path, change in (
        (f"/api/v1/users/{FOREIGN}/eve", {"disabled": True}),
        (f"/api/v1/sites/{SUSPENDED}", {"suspended": True}),
    ):
        pool.admin.patch(path, json=change).raise_for_status()
    pool.change(
        update(TokenRecord)
        .where(TokenRecord.id == expired["token_id"])
        .values(expires_at=now_utc() - timedelta(seconds=1))
    )
    return results


@pytest.fixture(scope="module")
def pairs(pool: PoolDriver, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Pair]]:
    """Hidden things of `SITE` by the route's parameter, or by the route where it is in a body."""
    subjects = Subjects(pool, tmp_path_factory.mktemp("walk-subjects"))
    member, curator = pool.member(SITE), pool.member(SITE, "curator")
    secret = network_bytes()
    private = upload(member, f"{SITE}/{HIDDEN[0]}", secret, visibility="private")
    upload(member, f"{SITE}/{HIDDEN[1]}", draft=True)
    upload(member, f"{SITE}/{HIDDEN[2]}")
    unnamed = upload(member, f"{SITE}/{HIDDEN[3]}", visibility="private")["digest"]
    for name, act, body in (
        (HIDDEN[2], "quarantine", {"reason": CANARY}),
        (HIDDEN[3], "withdraw", {"reason": "quality"}),
    ):
        path = f"/api/v1/models/{SITE}/{name}/versions/1/{act}"
        assert curator.post(path, json=body).is_success
    merged = network_bytes()
    upload(member, f"{SITE}/open", merged, recipe=recipe_for(merged, private["digest"]))
    upload(member, f"{SITE}/open", draft=True)
    evaluation = {"dataset": "ward", "dataset_digest": "ab" * 32}
    scores = {"scores": {"recall": {"value": 0.5}}}
    model = f"{SITE}/{HIDDEN[0]}@1"
    posted = member.post("/api/v1/evaluations", json={"model": model, **evaluation, **scores})
    assert posted.status_code == 201
    forest = bytes(encode_model(base_model(FOREST_SEED)))
    upload(member, f"{SITE}/forest", forest)
    subjects.site_admin.post("/api/v1/invitations", json={"site": SITE}).raise_for_status()
    users = {"site": SITE, "role": "viewer"}
    invited = pool.admin.post("/api/v1/invitations", json=users).json()["secret"]
    pool.client(None).post("/api/v1/invitations/accept", json={"secret": invited, "name": CANARY})
    asked = subjects.new_merge().body
    assert isinstance(asked, dict)
    merge = member.post("/api/v1/merges", json=asked["json"]).json()

    def of(name: str, value: Any) -> list[Pair]:
        absent = hashlib.sha256(str(value).encode()).hexdigest()[: len(str(value))]
        return [Pair({name: value}, {name: absent})]

    def bodies(key: str, **rest: Any) -> list[Pair]:
        return [
            Pair({}, {}, ({"json": rest | {key: there}}, {"json": rest | {key: absent}}))
            for there, absent in references
        ]

    references = [(f"{SITE}/{name}@1", f"{SITE}/{NEVER}@1") for name in HIDDEN]
    unknown = "0" * 64
    drafted = {"site": SITE, "name": "open"}
    contribution = subjects.a_whole_contribution().values
    inputs = [
        {"digest": digest, "address": None, "file_name": None}
        for digest in (private["digest"], unknown)
    ]
    requests = [
        {"site": FOREIGN, "name": "merged", "recipe": recipe_of([]) | {"inputs": [source]}}
        for source in inputs
    ]
    session = {
        **subjects.a_session_with_file().values,
        "upload_id": subjects.an_upload().values["upload_id"],
    }
    return {
        "{session_id}": [Pair(session, session | {"session_id": "0" * 64})],
        "{name}": [
            *(Pair({"site": SITE, "name": name}, {"site": SITE, "name": NEVER}) for name in HIDDEN),
            Pair({**drafted, "reference": "2"}, {**drafted, "reference": "9"}),
        ],
        "{digest}": [Pair({"digest": unnamed}, {"digest": unknown})],
        "{round_id}/contributions/uploads/{upload_id}": [
            Pair(contribution, {"round_id": "0" * 16, "upload_id": "0" * 32})
        ],
        "{upload_id}": of("upload_id", subjects.an_upload().values["upload_id"]),
        "{round_id}": of("round_id", subjects.start_round()),
        "{merge_id}": of("merge_id", merge["merge_id"]),
        "{token_id}": of("token_id", subjects.a_token().values["token_id"]),
        "{invitation_id}": of("invitation_id", subjects.an_invitation().values["invitation_id"]),
        "{user}": [Pair({"site": SITE, "user": CANARY}, {"site": SITE, "user": NEVER})],
        "POST /api/v1/evaluations": [
            *bodies("model", **evaluation, **scores),
            Pair(
                {},
                {},
                (
                    {"json": {"model": f"sha256:{private['digest']}", **evaluation, **scores}},
                    {"json": {"model": f"sha256:{unknown}", **evaluation, **scores}},
                ),
            ),
        ],
        "POST /api/v1/rounds": bodies(
            "base", sites=[FOREIGN], deadline=(now_utc() + timedelta(days=1)).isoformat()
        ),
        "POST /api/v1/merges": [Pair({}, {}, ({"json": requests[0]}, {"json": requests[1]}))],
        "GET /api/v1/models": [
            Pair({}, {}, ({"params": {"mergeable_with": a}}, {"params": {"mergeable_with": b}}))
            for a, b in [*references, (f"sha256:{private['digest']}", f"sha256:{unknown}")]
        ],
    }


def pairs_of(pairs: Mapping[str, list[Pair]], method: str, path: str) -> list[Pair]:
    """Return the pairs that a route is walked with; listings and the like are walked once."""
    for name, route_pairs in pairs.items():
        if name.startswith("{") and name in path:
            return route_pairs
    return pairs.get(f"{method} {path}", [NOTHING])


def test_things_of_others_are_answered_like_missing_ones(
    pool: PoolDriver, outsiders: dict[str, str | None], pairs: dict[str, list[Pair]]
) -> None:
    version_ids: list[tuple[object, ...]] = []
    before = settled(pool)
    shut_out = {
        caller: pool.client(secret).get("/api/v1/whoami").status_code != 200
        for caller, secret in outsiders.items()
    }
    refused = [caller for caller, is_out in shut_out.items() if is_out]
    assert 0 < len(refused) < len(shut_out)
    for number, (method, path) in enumerate(MATRIX):
        # Of those whom the pool lets in nowhere, each route meets one.
        left_out = {*refused} - {refused[number % len(refused)]}
        for caller, secret in outsiders.items():
            if caller in left_out and (method, path) not in OPEN:
                continue
            client, targets = pool.client(secret), pairs_of(pairs, method, path)
            for pair in targets if caller == THOROUGH else targets[:1]:
                there = ask(client, method, path, pair, is_there=True)
                if shut_out[caller] and (method, path) not in OPEN:
                    if there.status_code not in {401, 403}:
                        version_ids.append((caller, method, path, "let in", there.text))
                    continue
                if pair == NOTHING:
                    # The audit has the names that the site itself has asked for.
                    if CANARY in there.text and not path.endswith("/audit"):
                        version_ids.append((caller, method, path, "a name", there.text))
                    continue
                absent = ask(client, method, path, pair, is_there=False)
                if told(there, pair.there, pair) != told(absent, pair.absent, pair):
                    version_ids.append((caller, method, path, pair, there.text, absent.text))
        after = rows(pool)
        changed = [name for name in after if after[name] != before[name]]
        if changed:
            version_ids.append(("somebody", method, path, "changed", changed))
            before = after
    assert version_ids == []


def ask(
    client: httpx.Client, method: str, path: str, pair: Pair, *, is_there: bool
) -> httpx.Response:
    values = {"site": SITE, "name": "open", "reference": "1", "number": 1, "user": CANARY}
    values |= {"key_id": "0" * 64, "digest": "0" * 64, "upload_id": "0" * 32}
    values |= {"size": "thumb"}
    values |= pair.there if is_there else pair.absent
    body = pair.body[0 if is_there else 1] if pair.body else BODIES.get((method, path), {})
    return client.request(method, path.format(**values), **body)


def told(answer: httpx.Response, values: Mapping[str, Any], pair: Pair) -> Any:
    """Return an answer without the request's values and random differences."""
    text = answer.text
    bodies = [] if pair.body is None else [str(item) for item in pair.body]
    for value in values.values():
        if len(str(value)) > 1:
            text = text.replace(str(value), "...")
    for word in (*HIDDEN, NEVER, "0" * 64):
        text = text.replace(word, "...")
    for digest in {word for body in bodies for word in body.replace("sha256:", "'").split("'")}:
        if len(digest) == 64:
            text = text.replace(digest, "...")
    text = re.sub(r'"request_id": ?"[^"]*"', "", text)
    if "reference" in values:
        text = text.replace(f"version {values['reference']}", "version ...")
    skipped = {"date", "x-request-id", "content-length"}
    headers = {name: value for name, value in answer.headers.items() if name not in skipped}
    return answer.status_code, text, headers


def settled(pool: PoolDriver) -> dict[str, str]:
    """Return `rows` once the merge in the background is over."""
    while any(
        item["state"] in {"queued", "running"}
        for item in pool.admin.get("/api/v1/merges").json()["items"]
    ):
        time.sleep(0.05)
    return rows(pool)


def rows(pool: PoolDriver) -> dict[str, str]:
    """Return a digest of every table, without the traces that any request leaves."""
    address = f"file:{database_file(pool)}?mode=ro"
    with closing(sqlite3.connect(address, uri=True)) as connection:
        names = [
            name
            for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type='table'")
            if name not in _TRACES
        ]
        return {name: _digest(connection, name) for name in names}


def _digest(connection: sqlite3.Connection, name: str) -> str:
    columns = [row[1] for row in connection.execute(f"PRAGMA table_info('{name}')")]
    kept = ", ".join(f'"{column}"' for column in columns if column != "last_used_at")
    digest = hashlib.sha256()
    for row in connection.execute(f'SELECT {kept} FROM "{name}"'):
        digest.update(repr(row).encode())
    return digest.hexdigest()


def database_file(pool: PoolDriver) -> Path:
    return pool.settings.database_file
