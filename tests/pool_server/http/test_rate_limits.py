"""Limits on what may be tried how often, and whose word counts for where it came from."""

from __future__ import annotations

from pathlib import Path

from tests.pool_server.pool_driver import PoolDriver, error_of, pool_in_thread


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_who_guesses_tokens_has_to_wait_and_others_need_not(tmp_path: Path) -> None:
    with pool_in_thread(tmp_path, tries_per_minute=3) as pool:
        guesses = [pool.client(f"pool_{number}").get("/api/v1/whoami") for number in range(5)]
        assert [each.status_code for each in guesses] == [401, 401, 401, 429, 429]
        assert error_of(guesses[-1]) == (429, "too_many_requests")
        assert 1 <= int(guesses[-1].headers["Retry-After"]) <= 20
        assert pool.admin.get("/api/v1/whoami").status_code == 200
        assert pool.client(None).get("/api/v1/whoami").status_code == 401, "no token is no guess"


def test_invitations_and_tokens_are_not_made_without_end(tmp_path: Path) -> None:
    with pool_in_thread(tmp_path, tries_per_minute=2) as pool:
        request = {"secret": "invite_x", "name": "eve"}
        address = "/api/v1/invitations/accept"
        tried = [pool.client(None).post(address, json=request) for _ in range(3)]
        assert [each.status_code for each in tried] == [403, 403, 429]
        assert int(tried[-1].headers["Retry-After"]) <= 30
        made = [
            pool.admin.post("/api/v1/invitations", json={"site": "admin"}),
            pool.admin.post("/api/v1/tokens", json={"site": "admin", "name": "a"}),
            pool.admin.post("/api/v1/tokens", json={"site": "admin", "name": "b"}),
        ]
        assert [each.status_code for each in made] == [201, 201, 429]
        assert error_of(pool.admin.delete(f"/api/v1/tokens/{'0' * 16}")) == (
            429, "too_many_requests",
        )  # fmt: skip


def audited_address(pool: PoolDriver, forwarded: str, site: str) -> str:
    """Create a site as if `forwarded` had been added by a proxy; return what the audit says."""
    made = pool.admin.post(
        "/api/v1/sites", json={"name": site}, headers={"X-Forwarded-For": forwarded}
    )
    assert made.status_code == 201
    entries = pool.admin.get("/api/v1/audit", params={"subject": site}).json()["items"]
    return str(entries[0]["address"])


def test_a_trusted_proxy_says_where_a_request_comes_from(tmp_path: Path) -> None:
    with pool_in_thread(
        tmp_path, tries_per_minute=1, trusted_proxies="127.0.0.1, 10.0.0.0/8"
    ) as pool:
        # Only what trusted proxies added counts, not what the client itself had sent them.
        assert audited_address(pool, "203.0.113.9, 192.0.2.7, 10.1.2.3", "lab") == "192.0.2.7"
        assert len(audited_address(pool, "x" * 500, "lab-2")) == 64
        statuses = [
            pool.client("pool_guess")
            .get("/api/v1/whoami", headers={"X-Forwarded-For": address})
            .status_code
            for address in ("192.0.2.7", "192.0.2.7", "192.0.2.8")
        ]
        assert statuses == [401, 429, 401]
