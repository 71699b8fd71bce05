"""Downloading: whole, in ranges, and only when needed."""

import pytest

from tests.pool_server.model_files import network_bytes, sha256
from tests.pool_server.pool_driver import PoolDriver, error_of, upload

CONTENT = network_bytes(600_000, seed=7)  # over two chunks of the server
ADDRESS = "/api/v1/models/down/gaze/versions/1/content"


@pytest.fixture(scope="module", autouse=True)
def stored(pool: PoolDriver) -> None:
    upload(pool.member("down"), "down/gaze", CONTENT, file_name="Gäze model.safetensors")


@pytest.mark.both_shapes
def test_a_whole_file(pool: PoolDriver) -> None:
    answer = pool.admin.get(ADDRESS)
    assert answer.status_code == 200
    assert answer.content == CONTENT
    assert answer.headers["accept-ranges"] == "bytes"
    assert answer.headers["content-length"] == str(len(CONTENT))
    # Where the storage sends the file, the pool's own answer led there.
    own_answer = (answer.history or [answer])[0]
    assert own_answer.headers["etag"] == f'"{sha256(CONTENT)}"'
    assert answer.headers["content-disposition"] == (
        "attachment; filename*=UTF-8''G%C3%A4ze%20model.safetensors"
    )


def test_a_head_request_returns_no_bytes(pool: PoolDriver) -> None:
    answer = pool.admin.head(ADDRESS)
    assert answer.status_code == 200
    assert answer.headers["content-length"] == str(len(CONTENT))
    assert answer.content == b""


@pytest.mark.both_shapes
def test_an_interrupted_download_can_be_resumed(pool: PoolDriver) -> None:
    middle = 1_234_567
    headers = {"Range": f"bytes={middle}-", "If-Range": f'"{sha256(CONTENT)}"'}
    answer = pool.admin.get(ADDRESS, headers=headers)
    assert answer.status_code == 206
    assert answer.content == CONTENT[middle:]
    assert answer.headers["content-range"] == f"bytes {middle}-{len(CONTENT) - 1}/{len(CONTENT)}"


@pytest.mark.parametrize(
    "headers",
    [{"Range": "bytes=10-", "If-Range": '"something else"'}, {"Range": "bytes=5-2"}],
    ids=["of another file", "backwards"],
)
def test_the_whole_file_comes_in_place_of_a_part_that_nobody_can_join(
    embedded_pool: PoolDriver, headers: dict[str, str]
) -> None:
    pool = embedded_pool
    upload(pool.member("down"), "down/gaze", CONTENT)
    answer = pool.admin.get(ADDRESS, headers=headers)
    assert answer.status_code == 200
    assert answer.content == CONTENT


def test_a_range_after_the_end_is_refused(embedded_pool: PoolDriver) -> None:
    pool = embedded_pool
    upload(pool.member("down"), "down/gaze", CONTENT)
    answer = pool.admin.get(ADDRESS, headers={"Range": f"bytes={len(CONTENT)}-"})
    assert error_of(answer) == (416, "range_not_satisfiable")
    assert answer.headers["content-range"] == f"bytes */{len(CONTENT)}"
