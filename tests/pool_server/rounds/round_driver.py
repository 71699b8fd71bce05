"""Short functions for sites' acts in a round, with invented but valid contributions."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from sqlalchemy import update

from aggregators.formats import encode_model
from aggregators.methods import Merged, merge
from aggregators.methods.refitting import (
    RefitSettings,
    encode_contribution,
    forest_digest,
    thin_base,
)
from aggregators.methods.refitting.contribution_file import decode_contribution
from aggregators.models import LeafContribution, ShapePredictor
from pool_server.database.engine import Database
from pool_server.database.records import RoundRecord, now_utc
from pool_server.settings import PoolSettings
from tests.aggregators.small_models import make_predictor
from tests.pool_server.merges.merge_driver import OVER, wait_for
from tests.pool_server.model_files import sha256
from tests.pool_server.pool_driver import PoolDriver, send_parts, upload

SITES = ("round-a", "round-b", "round-c")


def base_model(seed: int = 1) -> ShapePredictor:
    """Return a small landmark model as it is after having been in a file.

    No other tests have this one: in the shared pool a file is of the site that had it first.
    """
    return make_predictor(1000 + seed)


def contribution_bytes(
    base: ShapePredictor, seed: int, *, options: dict[str, Any] | None = None, **changed: Any
) -> bytes:
    """Return the file of a contribution that fits `base`, except for `changed`."""
    settings = RefitSettings.model_validate(options or {})
    forest = thin_base(base, settings.thin)
    random = np.random.default_rng(seed)
    counts = random.integers(0, 4, len(forest.leaves)).astype(np.uint32)
    changes = random.standard_normal(forest.leaves.shape).astype(np.float32) * np.float32(0.01)
    changes[counts == 0] = 0
    fields: dict[str, Any] = {
        "changes": changes,
        "counts": counts,
        "base_digest": forest_digest(base),
        "settings": settings.resolved(forest).shared(),
    }
    return encode_contribution(LeafContribution(**(fields | changed)))


def ask_for_round(
    client: httpx.Client, base: str, sites: Iterable[str] = SITES, **fields: Any
) -> httpx.Response:
    """Ask for a round of one day, except for `fields`."""
    deadline = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    request = {"base": base, "sites": list(sites), "deadline": deadline, **fields}
    return client.post("/api/v1/rounds", json=request)


def start_round(
    pool: PoolDriver, base: str, sites: tuple[str, ...] = SITES, **fields: Any
) -> dict[str, Any]:
    """Start a round as the first of its sites."""
    for site in sites:
        pool.secret(site, "contributor")
    answer = ask_for_round(pool.member(sites[0]), base, sites, **fields)
    assert answer.status_code == 201, answer.text
    return answer.json()


def upload_base(pool: PoolDriver, name: str, seed: int = 1) -> tuple[ShapePredictor, str]:
    """Upload a base for rounds; gives it and its address."""
    base = base_model(seed)
    pool.secret(SITES[0], "contributor")
    upload(pool.member(SITES[0]), f"{SITES[0]}/{name}", bytes(encode_model(base)))
    return base, f"pool://{SITES[0]}/{name}@1"


def announce_contribution(
    client: httpx.Client, key: str, site: str, content: bytes, **fields: Any
) -> httpx.Response:
    request = {
        "site": site,
        "size_bytes": len(content),
        "digest": sha256(content),
        "file_name": f"{site}.contribution",
        # Most rounds here have two sites; what more a site asks is tested by itself.
        "least_others": 1,
        **fields,
    }
    return client.post(f"/api/v1/rounds/{key}/contributions", json=request)


def contribute(
    client: httpx.Client, key: str, site: str, content: bytes, **fields: Any
) -> httpx.Response:
    """Contribute as far as the pool lets one; gives the last answer."""
    announced = announce_contribution(client, key, site, content, **fields)
    if not announced.is_success or announced.json()["state"] == "complete":
        return announced
    send_parts(client, announced.json(), content)
    upload_id = announced.json()["upload_id"]
    return client.post(f"/api/v1/rounds/{key}/contributions/uploads/{upload_id}/complete")


def contribute_all(
    pool: PoolDriver, key: str, base: ShapePredictor, sites: tuple[str, ...] = SITES, seed: int = 20
) -> list[bytes]:
    """Contribute for each site; gives the files."""
    contents = [contribution_bytes(base, seed + number) for number in range(len(sites))]
    for site, content in zip(sites, contents, strict=True):
        assert contribute(pool.member(site), key, site, content).status_code == 201
    return contents


def combine(folder: Path, base: ShapePredictor, contributions: list[bytes]) -> tuple[Path, Merged]:
    """Combine on one machine, as the pool should."""
    decoded = [decode_contribution(content) for content in contributions]
    output = folder / "result.dat"
    return output, merge("leaf-refit", [base, *decoded], output=output)


def ask_to_finish(client: httpx.Client, key: str, address: str, **fields: Any) -> httpx.Response:
    """Have the pool combine the contributions, and publish the result, in the background."""
    site, name = address.split("/")
    return client.post(f"/api/v1/rounds/{key}/finish", json={"site": site, "name": name, **fields})


def finish(client: httpx.Client, key: str, address: str, **fields: Any) -> httpx.Response:
    """Finish a round and wait for its end: gives the refusal, the failed merge, or the round."""
    asked = ask_to_finish(client, key, address, **fields)
    if not asked.is_success:
        return asked
    merge_id = asked.json()["merge_id"]
    if wait_for(client, merge_id, OVER)["state"] != "finished":
        return client.get(f"/api/v1/merges/{merge_id}")
    return client.get(f"/api/v1/rounds/{key}")


def take_back(client: httpx.Client, key: str, site: str) -> httpx.Response:
    return client.delete(f"/api/v1/rounds/{key}/contributions/{site}")


def show(client: httpx.Client, key: str) -> dict[str, Any]:
    answer = client.get(f"/api/v1/rounds/{key}")
    assert answer.status_code == 200, answer.text
    return answer.json()


def states(shown: dict[str, Any]) -> dict[str, str]:
    return {participant["site"]: participant["state"] for participant in shown["participants"]}


def pass_deadline(settings: PoolSettings, key: str) -> None:
    """Let the time of a round be over."""
    database = Database.open(settings)
    with database.write() as session:
        session.execute(
            update(RoundRecord)
            .where(RoundRecord.key == key)
            .values(deadline=now_utc() - timedelta(seconds=1))
        )
    database.close()
