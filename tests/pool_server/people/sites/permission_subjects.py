"""The subject of each call of `permission_matrix`, made for it.

A refused caller must not use a subject up, so it is reused until a caller is allowed; the next one
gets another.
"""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from aggregators.formats import encode_model
from aggregators.methods.merging import encode_input
from pool_server.wire.rounds import TERMS_TYPE, RoundResponse, RoundTerms
from pool_server.wire.signatures.keys import PrivateKey, seal
from tests.aggregators.methods.networks.small_rounds import class_statistics, make_base
from tests.pool_server.merges.merge_driver import recipe_of
from tests.pool_server.model_files import network_bytes, sha256
from tests.pool_server.people.sites.permission_matrix import PARTNER, SITE
from tests.pool_server.pool_driver import PoolDriver, announce, send_parts, upload
from tests.pool_server.rounds.network_driver import TRAINING, network_contribution
from tests.pool_server.rounds.round_driver import (
    announce_contribution,
    base_model,
    contribute,
    contribution_bytes,
    finish,
    start_round,
)
from tests.pool_server.secure.session_driver import (
    announce_file,
    send_file,
    session_request,
    start_session,
)
from tests.pool_server.signatures.signers import proof, register, signed, statement_of

FOREST_SEED = 505
Body = dict[str, Any]


@dataclass(frozen=True)
class Subject:
    """The subject of a call: values for its path and body, added to PATH_VALUES and BODIES."""

    values: Mapping[str, Any] = field(default_factory=dict)
    body: Body | Callable[[httpx.Client], Body] | None = None


class Subjects:
    """Makes the subjects of calls, as allowed members of the site."""

    def __init__(self, pool: PoolDriver, folder: Path) -> None:
        self.pool = pool
        self.folder = folder
        self.member = pool.member(SITE)
        self.curator = pool.member(SITE, "curator")
        self.site_admin = pool.member(SITE, "admin")
        self._numbers = itertools.count(1)
        self.key = self.new_key()
        assert register(self.member, SITE, self.key).status_code == 201

    def make(self, method: str, path: str) -> Subject:
        maker = MAKERS.get((method, path))
        return Subject() if maker is None else maker(self)

    def number(self) -> int:
        return next(self._numbers)

    def new_name(self) -> str:
        return f"{SITE}-{self.number()}"

    def new_key(self) -> PrivateKey:
        return PrivateKey.from_seed(sha256(self.new_name().encode())[:32].encode())

    # -- people and keys -------------------------------------------------------------------------

    def invitation(self) -> dict[str, Any]:
        return dict(self.site_admin.post("/api/v1/invitations", json={"site": SITE}).json())

    def an_invitation(self) -> Subject:
        return Subject({"invitation_id": self.invitation()["invitation_id"]})

    def acceptance(self) -> Subject:
        secret = self.invitation()["secret"]
        return Subject(body={"json": {"secret": secret, "name": self.new_name()}})

    def new_site(self) -> Subject:
        return Subject(body={"json": {"name": self.new_name()}})

    def new_token(self) -> Subject:
        return Subject(body={"json": {"site": SITE, "name": self.new_name(), "role": "viewer"}})

    def a_token(self) -> Subject:
        request = {"site": SITE, "name": self.new_name(), "role": "viewer"}
        made = self.site_admin.post("/api/v1/tokens", json=request)
        return Subject({"token_id": made.json()["token_id"]})

    def new_key_of_site(self) -> Subject:
        key = self.new_key()
        path = f"/api/v1/sites/{SITE}/keys/challenge"

        def prove(client: httpx.Client) -> Body:
            # It is good for who asked only.
            asked = client.post(path, json={"public_key": key.public.text})
            challenge = asked.json()["challenge"] if asked.is_success else "none"
            return {"json": proof(key, challenge)}

        return Subject(body=prove)

    def a_key(self) -> Subject:
        key = self.new_key()
        assert register(self.member, SITE, key).status_code == 201
        return Subject({"key_id": key.public.key_id})

    # -- models ----------------------------------------------------------------------------------

    def a_model(self, **fields: Any) -> Subject:
        name = self.new_name()
        upload(self.member, f"{SITE}/{name}", **fields)
        return Subject({"name": name})

    def a_draft(self) -> Subject:
        return self.a_model(draft=True)

    def a_quarantined_model(self) -> Subject:
        subject = self.a_model()
        path = f"/api/v1/models/{SITE}/{subject.values['name']}/versions/1/quarantine"
        assert self.curator.post(path, json={"reason": "doubt"}).status_code == 200
        return subject

    def a_statement(self) -> Subject:
        name, content = self.new_name(), network_bytes()
        upload(self.member, f"{SITE}/{name}", content)
        statement = statement_of(f"{SITE}/{name}", content)
        return Subject({"name": name}, {"json": signed(statement, self.key)})

    def a_signed_model(self) -> Subject:
        subject = self.a_statement()
        path = f"/api/v1/models/{SITE}/{subject.values['name']}/versions/1/statement"
        assert isinstance(subject.body, dict)
        assert self.member.put(path, **subject.body).is_success
        return Subject(subject.values)

    def a_published_file(self) -> Subject:
        version = self.member.get(f"/api/v1/models/{SITE}/face/versions/1").json()
        return Subject({"digest": version["digest"]})

    # -- uploads and merges ----------------------------------------------------------------------

    def new_upload(self) -> Subject:
        request = {"site": SITE, "name": "open", "size_bytes": 9, "file_name": "a.bin"}
        digest = sha256(self.new_name().encode())
        return Subject(body={"json": request | {"digest": digest}})

    def an_upload(self) -> Subject:
        content = network_bytes()
        opened = announce(self.member, f"{SITE}/open", content).json()
        parts = {"parts": [{"number": 1, "checksum": sha256(content)}]}
        return Subject({"upload_id": opened["upload_id"]}, {"json": parts})

    def a_part(self) -> Subject:
        content = network_bytes()
        opened = announce(self.member, f"{SITE}/open", content).json()
        return Subject({"upload_id": opened["upload_id"]}, {"content": content})

    def a_whole_upload(self) -> Subject:
        content = network_bytes()
        opened = announce(self.member, f"{SITE}/open", content).json()
        send_parts(self.member, opened, content)
        return Subject({"upload_id": opened["upload_id"]})

    def without_body(self) -> Subject:
        return Subject(self.an_upload().values)

    def new_merge(self) -> Subject:
        forest = self.member.get(f"/api/v1/models/{SITE}/forest/versions/1").json()
        request = {"site": SITE, "name": self.new_name(), "recipe": recipe_of([forest])}
        return Subject(body={"json": request})

    # -- rounds ----------------------------------------------------------------------------------

    def start_round(self) -> str:
        return str(start_round(self.pool, f"{SITE}/forest@1", (SITE, PARTNER))["round_id"])

    def a_round(self) -> Subject:
        return Subject({"round_id": self.start_round()})

    def a_round_to_sign(self) -> Subject:
        """Give a round and its terms; any key will do, as the sites check the signature."""
        started = start_round(self.pool, f"{SITE}/forest@1", (SITE, PARTNER))
        terms = RoundTerms.of(RoundResponse.model_validate(started))
        envelope = seal(TERMS_TYPE, terms.to_bytes(), self.new_key())
        return Subject({"round_id": started["round_id"]}, {"json": envelope.model_dump()})

    def contribution(self) -> bytes:
        return contribution_bytes(base_model(FOREST_SEED), self.number())

    def new_contribution(self) -> Subject:
        content = self.contribution()
        request = {
            "site": SITE,
            "least_others": 1,
            "size_bytes": len(content),
            "digest": sha256(content),
        }
        return Subject(self.a_round().values, {"json": request | {"file_name": "a.bin"}})

    def a_whole_contribution(self) -> Subject:
        key, content = self.start_round(), self.contribution()
        opened = announce_contribution(self.member, key, SITE, content).json()
        send_parts(self.member, opened, content)
        return Subject({"round_id": key, "upload_id": opened["upload_id"]})

    def a_round_with_contribution(self, *sites: str) -> Subject:
        key = self.start_round()
        for site in sites or (SITE,):
            client, content = self.pool.member(site), self.contribution()
            assert contribute(client, key, site, content).status_code == 201
        return Subject({"round_id": key})

    def a_ready_round(self) -> Subject:
        return self.a_round_with_contribution(SITE, PARTNER)

    def a_round_with_replies(self) -> Subject:
        name, seed = self.new_name(), self.number()
        base = make_base(7000 + seed, "f4")
        upload(self.member, f"{SITE}/{name}", bytes(encode_model(base)))
        started = start_round(
            self.pool, f"{SITE}/{name}@1", (SITE, PARTNER), method="fedpac", options=TRAINING
        )
        key = started["round_id"]
        for number, site in enumerate((SITE, PARTNER)):
            made = network_contribution(
                base, started["base_digest"], number, statistics=class_statistics(number)
            )
            assert contribute(self.pool.member(site), key, site, encode_input(made)).is_success
        assert finish(self.member, key, f"{SITE}/{name}").json()["state"] == "finished"
        return Subject({"round_id": key})

    # -- secure sessions -------------------------------------------------------------------------

    def new_session(self) -> Subject:
        return Subject(body={"json": session_request((SITE, PARTNER), self.new_name())})

    def start_session(self) -> str:
        return start_session(self.member, (SITE, PARTNER), self.new_name())

    def a_session(self) -> Subject:
        return Subject({"session_id": self.start_session()})

    def a_session_with_file(self) -> Subject:
        key, content = self.start_session(), network_bytes()
        assert send_file(self.member, key, SITE, content).status_code == 201
        return Subject({"session_id": key, "digest": sha256(content)})

    def a_whole_session_file(self) -> Subject:
        key, content = self.start_session(), network_bytes()
        opened = announce_file(self.member, key, SITE, content).json()
        send_parts(self.member, opened, content)
        return Subject({"session_id": key, "upload_id": opened["upload_id"]})


_API = "/api/v1"
_VERSION = f"{_API}/models/{{site}}/{{name}}/versions/{{reference}}"
_UPLOAD = f"{_API}/uploads/{{upload_id}}"
_ROUND = f"{_API}/rounds/{{round_id}}"
_SESSION = f"{_API}/secure/sessions/{{session_id}}"
MAKERS: dict[tuple[str, str], Callable[[Subjects], Subject]] = {
    ("POST", f"{_API}/sites"): Subjects.new_site,
    ("POST", f"{_API}/invitations/accept"): Subjects.acceptance,
    ("DELETE", f"{_API}/invitations/{{invitation_id}}"): Subjects.an_invitation,
    ("POST", f"{_API}/tokens"): Subjects.new_token,
    ("DELETE", f"{_API}/tokens/{{token_id}}"): Subjects.a_token,
    ("POST", f"{_API}/sites/{{site}}/keys"): Subjects.new_key_of_site,
    ("POST", f"{_API}/sites/{{site}}/keys/{{key_id}}/revoke"): Subjects.a_key,
    ("GET", f"{_API}/lineage/{{digest}}"): Subjects.a_published_file,
    ("GET", f"{_API}/pictures/{{digest}}/{{size}}"): Subjects.a_published_file,
    ("GET", f"{_VERSION}/statement"): Subjects.a_signed_model,
    ("PUT", f"{_VERSION}/statement"): Subjects.a_statement,
    ("POST", f"{_VERSION}/publish"): Subjects.a_draft,
    ("POST", f"{_VERSION}/quarantine"): Subjects.a_model,
    ("POST", f"{_VERSION}/release"): Subjects.a_quarantined_model,
    ("POST", f"{_VERSION}/withdraw"): Subjects.a_model,
    ("DELETE", _VERSION): Subjects.a_model,
    ("DELETE", f"{_API}/models/{{site}}/{{name}}"): Subjects.a_model,
    ("POST", f"{_API}/uploads"): Subjects.new_upload,
    ("GET", _UPLOAD): Subjects.without_body,
    ("POST", f"{_UPLOAD}/parts"): Subjects.an_upload,
    ("PUT", f"{_UPLOAD}/parts/{{number}}"): Subjects.a_part,
    ("POST", f"{_UPLOAD}/complete"): Subjects.a_whole_upload,
    ("DELETE", _UPLOAD): Subjects.without_body,
    ("POST", f"{_API}/merges"): Subjects.new_merge,
    ("GET", _ROUND): Subjects.a_round,
    ("PUT", f"{_ROUND}/terms"): Subjects.a_round_to_sign,
    ("POST", f"{_ROUND}/close"): Subjects.a_ready_round,
    ("POST", f"{_ROUND}/cancel"): Subjects.a_round,
    ("POST", f"{_ROUND}/contributions"): Subjects.new_contribution,
    ("POST", f"{_ROUND}/contributions/uploads/{{upload_id}}/complete"): (
        Subjects.a_whole_contribution
    ),
    ("DELETE", f"{_ROUND}/contributions/{{site}}"): Subjects.a_round_with_contribution,
    ("GET", f"{_ROUND}/reply"): Subjects.a_round_with_replies,
    ("POST", f"{_ROUND}/finish"): Subjects.a_ready_round,
    ("POST", f"{_API}/secure/sessions"): Subjects.new_session,
    ("GET", _SESSION): Subjects.a_session,
    ("GET", f"{_SESSION}/posts"): Subjects.a_session,
    ("POST", f"{_SESSION}/posts"): Subjects.a_session,
    ("POST", f"{_SESSION}/files"): Subjects.a_session,
    ("POST", f"{_SESSION}/files/uploads/{{upload_id}}/complete"): Subjects.a_whole_session_file,
    ("HEAD", f"{_SESSION}/files/{{digest}}"): Subjects.a_session_with_file,
    ("GET", f"{_SESSION}/files/{{digest}}"): Subjects.a_session_with_file,
}
