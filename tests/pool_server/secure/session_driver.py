"""Short functions for sites' acts on the board of a secure sum."""

from datetime import UTC, datetime, timedelta
from typing import Any

import httpx

from tests.pool_server.model_files import sha256
from tests.pool_server.pool_driver import send_parts

SESSIONS = "/api/v1/secure/sessions"


def session_request(sites: tuple[str, ...], descriptor: str, **fields: Any) -> dict[str, Any]:
    ends_at = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    return {"descriptor": descriptor, "sites": [*sites], "ends_at": ends_at, **fields}


def start_session(
    client: httpx.Client, sites: tuple[str, ...], descriptor: str, **fields: Any
) -> str:
    """Open a session and return its identifier."""
    answer = client.post(SESSIONS, json=session_request(sites, descriptor, **fields))
    assert answer.status_code == 201, answer.text
    return str(answer.json()["session_id"])


def post(
    client: httpx.Client, key: str, sender: str, phase: str, envelope: str = "{}"
) -> httpx.Response:
    message = {"sender": sender, "phase": phase, "envelope": envelope}
    return client.post(f"{SESSIONS}/{key}/posts", json=message)


def posts(client: httpx.Client, key: str, after: int = 0) -> list[dict[str, Any]]:
    answer = client.get(f"{SESSIONS}/{key}/posts", params={"after": after})
    assert answer.status_code == 200, answer.text
    return answer.json()["items"]


def announce_file(client: httpx.Client, key: str, site: str, content: bytes) -> httpx.Response:
    request = {"site": site, "size_bytes": len(content), "digest": sha256(content)}
    return client.post(f"{SESSIONS}/{key}/files", json=request)


def send_file(client: httpx.Client, key: str, site: str, content: bytes) -> httpx.Response:
    """Send a file as far as the pool lets one; gives the last answer."""
    announced = announce_file(client, key, site, content)
    if not announced.is_success or announced.json()["state"] == "complete":
        return announced
    send_parts(client, announced.json(), content)
    upload_id = announced.json()["upload_id"]
    return client.post(f"{SESSIONS}/{key}/files/uploads/{upload_id}/complete")


def fetch_file(client: httpx.Client, key: str, content: bytes) -> httpx.Response:
    return client.get(f"{SESSIONS}/{key}/files/{sha256(content)}")
