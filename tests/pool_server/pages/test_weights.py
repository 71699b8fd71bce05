"""The cost of a page: bytes sent, and statements run by the database."""

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine

from tests.pool_server.merges.merge_driver import landmark_bytes
from tests.pool_server.pages.browser import Browser, member_browser
from tests.pool_server.pool_driver import PoolDriver, pool_in_process, upload
from tests.pool_server.statements import recorded_statements

ROWS = 6
MOST_STATEMENTS = {
    "/models?text=m": 8,
    "/models/weigh/m1": 20,
    "/compare?" + "&".join(f"model=weigh/m{number}" for number in range(6)): 10,
    "/evaluations": 8,
    "/rounds": 8,
    "/admin": 18,
}


# The pool looks for merges to do meanwhile, whatever a page asks.
OTHERS = ("BEGIN", "COMMIT", "ROLLBACK", "PRAGMA", "SAVEPOINT", "SELECT merge_jobs.id \n")


@pytest.fixture(scope="module")
def visited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[PoolDriver, Browser]]:
    """Open a separate pool: requests of other tests must not count."""
    folder = tmp_path_factory.mktemp("weights")
    with pool_in_process(folder, poll_interval_s=60) as pool:
        client = pool.member("weigh")
        for number in range(ROWS):
            upload(client, f"weigh/m{number}", landmark_bytes(5200 + number))
            scores = {"mean_error": {"value": 0.07}}
            measured = {"model": f"weigh/m{number}", "dataset": "ward", "dataset_digest": "5" * 64}
            posted = client.post("/api/v1/evaluations", json={**measured, "scores": scores})
            assert posted.status_code == 201, posted.text
        yield pool, member_browser(pool, "weigh", "admin")


@pytest.mark.parametrize("path", MOST_STATEMENTS)
def test_a_page_runs_few_statements_for_any_number_of_rows(
    visited: tuple[PoolDriver, Browser], path: str
) -> None:
    _, browser = visited
    browser.get(path)
    with recorded_statements(Engine) as executed:
        assert browser.get(path).status_code == 200
    asked = [statement for statement in executed if not statement.startswith(OTHERS)]
    assert len(asked) <= MOST_STATEMENTS[path], "\n\n".join(asked)


def test_pages_weigh_little(visited: tuple[PoolDriver, Browser]) -> None:
    _, browser = visited
    limits = {"/models": 12_000, "/models/weigh/m1": 12_000, "/upload": 12_000, "/account": 6_000}
    for path, most in limits.items():
        with browser.client.stream("GET", path) as answer:
            assert answer.headers["content-encoding"] == "gzip"
            sent = sum(len(chunk) for chunk in answer.iter_raw())
        assert sent < most, path


def test_style_and_script_are_fetched_once(visited: tuple[PoolDriver, Browser]) -> None:
    _, browser = visited
    page = browser.get("/models").text
    most = {"look.css": 9_000, "pool.js": 3_000}
    for name, bytes_at_most in most.items():
        address = next(word for word in page.split('"') if word.endswith(f"/{name}"))
        with browser.client.stream("GET", address) as answer:
            assert "immutable" in answer.headers["cache-control"]
            assert sum(len(chunk) for chunk in answer.iter_raw()) < bytes_at_most
        digest = address.split("/")[2]
        assert browser.get(address.replace(digest, "0" * 16)).status_code == 404
