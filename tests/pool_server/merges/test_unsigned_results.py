"""What the pool makes where only signed versions are taken: nobody can sign it there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx

from aggregators.formats import encode_model
from pool_server.signatures.statements import recipe_digest
from pool_server.wire.signatures.keys import PrivateKey
from tests.pool_server.conftest import OpenPool
from tests.pool_server.merges.merge_driver import OVER, ask, landmark_bytes, recipe_of, wait_for
from tests.pool_server.pool_driver import error_of, send_parts, upload
from tests.pool_server.rounds.round_driver import (
    SITES,
    base_model,
    combine,
    contribute,
    contribution_bytes,
    show,
    start_round,
)
from tests.pool_server.signatures.signers import register, signed, statement_of, upload_signed

KEY = PrivateKey.from_seed(b"m" * 32)
MERGED = "/api/v1/models/strict/merged/versions/1"


def merge_signed(member: httpx.Client) -> dict[str, Any]:
    """Have the pool merge two signed models of a site; gives the job when it is over."""
    register(member, "strict", KEY)
    inputs = [
        upload_signed(member, f"strict/face-{seed}", KEY, landmark_bytes(seed)) for seed in (1, 4)
    ]
    asked = ask(member, recipe_of(inputs), site="strict", file_name="merged.bin")
    return wait_for(member, asked.json()["merge_id"], OVER)


def test_a_merge_is_a_draft_until_its_site_has_signed_it(
    open_pool: OpenPool, tmp_path: Path
) -> None:
    with open_pool(tmp_path, require_signatures=True, poll_interval_s=0.05) as pool:
        member, other = pool.member("strict"), pool.member("other")
        job = merge_signed(member)
        assert (job["state"], job["refusal"]) == ("finished", None)
        version = member.get(MERGED).json()
        assert (version["state"], version["signed_by"]) == ("draft", None)
        assert other.get(MERGED).status_code == 404
        assert other.get(f"{MERGED}/content").status_code == 404
        # Nor does another site's merge of it tell that it is there.
        answer = ask(other, recipe_of([version]), site="other")
        assert "is not in the pool" in answer.json()["error"]["message"]

        refused = member.post(f"{MERGED}/publish")
        assert error_of(refused) == (422, "signature_required")
        assert "poolctl keys sign strict/merged@1" in refused.json()["error"]["hint"]

        recipe = member.get(f"{MERGED}/lineage").json()["recipe"]
        content = member.get(f"{MERGED}/content").content
        statement = statement_of(
            "strict/merged",
            content,
            recipe_digest=recipe_digest(recipe),
            parents=version["parent_digests"],
        )
        answer = member.put(f"{MERGED}/statement", json=signed(statement, KEY))
        assert answer.status_code == 200, answer.text
        assert member.post(f"{MERGED}/publish").json()["state"] == "available"
        assert other.get(MERGED).json()["signed_by"]["key_id"] == KEY.public.key_id


def test_a_site_merges_its_own_drafts_on(open_pool: OpenPool, tmp_path: Path) -> None:
    with open_pool(tmp_path, poll_interval_s=0.05) as pool:
        member = pool.member("drafts")
        inputs = [
            upload(member, f"drafts/face-{seed}", landmark_bytes(seed), draft=draft)
            for seed, draft in ((1, True), (4, False))
        ]
        asked = ask(member, recipe_of(inputs), site="drafts")
        assert wait_for(member, asked.json()["merge_id"], OVER)["state"] == "finished"
        answer = ask(pool.member("other"), recipe_of(inputs), site="other")
        assert error_of(answer) == (422, "merge_refused")
        assert "is not in the pool" in answer.json()["error"]["message"], "nor that it is there"


def test_a_round_is_finished_by_who_can_sign(open_pool: OpenPool, tmp_path: Path) -> None:
    with open_pool(tmp_path / "pool", require_signatures=True) as pool:
        base, (first, second) = base_model(3), SITES[:2]
        member = pool.member(first)
        register(member, first, KEY)
        upload_signed(member, f"{first}/base", KEY, bytes(encode_model(base)))
        key = start_round(pool, f"{first}/base@1", (first, second))["round_id"]
        contents = [contribution_bytes(base, seed) for seed in (20, 21)]
        for site, content in zip((first, second), contents, strict=True):
            assert contribute(pool.member(site), key, site, content).status_code == 201
        address = {"site": first, "name": "refined"}
        refused = member.post(f"/api/v1/rounds/{key}/finish", json=address)
        assert error_of(refused) == (422, "signature_required")
        assert f"poolctl rounds finish {key}" in refused.json()["error"]["hint"]
        assert show(member, key)["ready"], "the round goes on"

        path, merged = combine(tmp_path, base, contents)
        recipe, content = json.loads(merged.recipe.to_json()), path.read_bytes()
        statement = statement_of(
            f"{first}/refined",
            content,
            recipe_digest=recipe_digest(recipe),
            parents=list(merged.recipe.input_digests),
        )
        opened = member.post(
            f"/api/v1/rounds/{key}/result",
            json={
                **address,
                "size_bytes": len(content),
                "digest": merged.digest,
                "file_name": "refined.bin",
                "recipe": recipe,
                "statement": signed(statement, KEY),
            },
        )
        assert opened.status_code == 201, opened.text
        send_parts(member, opened.json(), content)
        done = member.post(
            f"/api/v1/rounds/{key}/result/uploads/{opened.json()['upload_id']}/complete"
        )
        assert done.json()["version"]["state"] == "available"
        # A round that is over is shown to whoever asks the pool to finish it.
        assert member.post(f"/api/v1/rounds/{key}/finish", json=address).status_code == 200
