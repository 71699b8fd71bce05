"""Rate limits, and the proxies that are believed about a client's address."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from pool_server.errors import TooManyRequestsError
from pool_server.http.rate_limits import MOST_KEYS, RateLimiter, rate_limit_key
from pool_server.settings import PoolSettings
from tests.pool_server.pool_driver import PoolDriver, error_of, pool_in_process, pool_in_thread


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def wait_of(limiter: RateLimiter, key: str) -> int:
    """Take one try; return the seconds to wait, 0 where there was one."""
    try:
        limiter.take(key, "tries")
    except TooManyRequestsError as error:
        return int(error.details["retry_after_s"])
    return 0


def test_an_empty_bucket_fills_up_within_a_minute() -> None:
    clock = Clock()
    limiter = RateLimiter(6, clock)
    assert [wait_of(limiter, "a") for _ in range(8)] == [0] * 6 + [10, 10]
    assert wait_of(limiter, "b") == 0, "everybody has a bucket of her own"
    clock.now_s += 9.5
    assert wait_of(limiter, "a") == 1
    clock.now_s += 0.5
    assert [wait_of(limiter, "a") for _ in range(2)] == [0, 10]
    clock.now_s += 3600
    assert [wait_of(limiter, "a") for _ in range(7)] == [0] * 6 + [10]


def test_buckets_are_forgotten_when_there_are_too_many() -> None:
    limiter = RateLimiter(1, Clock())
    assert [wait_of(limiter, "first") > 0 for _ in range(2)] == [False, True]
    for number in range(MOST_KEYS):
        limiter.take(str(number), "tries")
    assert wait_of(limiter, "first") == 0


@pytest.mark.parametrize(
    ("address", "key"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::1", "2001:db8:1:2::/64"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("unix", "unix"),
    ],
)
def test_an_address_counts_with_its_network(address: str, key: str) -> None:
    assert rate_limit_key(address) == key


def test_guessing_tokens_has_to_wait_and_other_callers_need_not(tmp_path: Path) -> None:
    with pool_in_process(tmp_path, tries_per_minute=3) as pool:
        guesses = [pool.client(f"pool_{number}").get("/api/v1/whoami") for number in range(5)]
        assert [answer.status_code for answer in guesses] == [401, 401, 401, 429, 429]
        assert error_of(guesses[-1]) == (429, "too_many_requests")
        assert 1 <= int(guesses[-1].headers["Retry-After"]) <= 20
        assert pool.admin.get("/api/v1/whoami").status_code == 200
        assert pool.client(None).get("/api/v1/whoami").status_code == 401, "no token is no guess"


def test_invitations_and_tokens_are_not_made_without_end(tmp_path: Path) -> None:
    with pool_in_process(tmp_path, tries_per_minute=2) as pool:
        request = {"secret": "invite_x", "name": "eve"}
        address = "/api/v1/invitations/accept"
        tried = [pool.client(None).post(address, json=request) for _ in range(3)]
        assert [answer.status_code for answer in tried] == [403, 403, 429]
        assert int(tried[-1].headers["Retry-After"]) <= 30
        made = [
            pool.admin.post("/api/v1/invitations", json={"site": "admin"}),
            pool.admin.post("/api/v1/tokens", json={"site": "admin", "name": "a"}),
            pool.admin.post("/api/v1/tokens", json={"site": "admin", "name": "b"}),
        ]
        assert [answer.status_code for answer in made] == [201, 201, 429]
        assert error_of(pool.admin.delete(f"/api/v1/tokens/{'0' * 16}")) == (
            429, "too_many_requests",
        )  # fmt: skip


def audited_address(pool: PoolDriver, forwarded: str, site: str) -> str:
    """Create a site as if a proxy had added `forwarded`; return the address in the audit."""
    made = pool.admin.post(
        "/api/v1/sites", json={"name": site}, headers={"X-Forwarded-For": forwarded}
    )
    assert made.status_code == 201
    entries = pool.admin.get("/api/v1/audit", params={"subject": site}).json()["items"]
    return str(entries[0]["address"])


def test_nobody_says_where_they_come_from(tmp_path: Path) -> None:
    with pool_in_process(tmp_path) as pool:
        assert audited_address(pool, "192.0.2.7", "lab") == "127.0.0.1"


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


@pytest.mark.parametrize("text", ["*", "10.0.0.1/8"])
def test_proxies_that_are_none(tmp_path: Path, text: str) -> None:
    with pytest.raises(ValidationError, match="not an address or network"):
        PoolSettings(data_folder=tmp_path, trusted_proxies=text)
