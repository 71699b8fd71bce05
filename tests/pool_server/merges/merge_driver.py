"""Helpers with which a site has the pool merge."""

import time
from collections.abc import Mapping
from typing import Any

import httpx

from aggregators.formats import encode_model
from tests.aggregators.small_models import make_predictor
from tests.pool_server.server_process import child_of

CASCADE = {"name": "wba-cascade", "version": 1}
OVER = {"finished", "failed", "cancelled"}


def landmark_bytes(seed: int, parts: int = 5) -> bytes:
    return bytes(encode_model(make_predictor(seed, parts=parts)))


def recipe_of(inputs: list[Mapping[str, Any]], **fields: Any) -> dict[str, Any]:
    return {
        "schema": "poolctl-recipe/1",
        "method": CASCADE,
        "options": {"step": 1.1},
        "inputs": [
            {
                "digest": version["digest"],
                "weight": float(number),
                "address": version["address"],
                "file_name": version["file_name"],
            }
            for number, version in enumerate(inputs, start=1)
        ],
        **fields,
    }


def ask(client: httpx.Client, recipe: Mapping[str, Any], **fields: Any) -> httpx.Response:
    request = {"site": "merges", "name": "merged", "recipe": recipe, **fields}
    return client.post("/api/v1/merges", json=request)


def wait_for(client: httpx.Client, merge_id: str, states: set[str]) -> dict[str, Any]:
    end = time.monotonic() + 540
    while True:
        job: dict[str, Any] = client.get(f"/api/v1/merges/{merge_id}").json()
        if job["state"] in states:
            return job
        assert time.monotonic() < end, job
        time.sleep(0.1)


def helper_of(server_process_id: int) -> int:
    """Return the child of a server that forks for each program, once it is there."""
    return child_of(server_process_id, "pool_server.jobs.limited")
