"""Lines of the log, in both forms."""

import io
import json
import logging
from pathlib import Path

import pytest

from pool_server.logs import prepare_handler
from pool_server.settings import PoolSettings
from tests.pool_server.pool_driver import announce, pool_in_process
from tests.waiting import wait_until


@pytest.mark.parametrize("form", ["text", "json"])
def test_each_line_names_the_request_that_it_was_written_for(tmp_path: Path, form: str) -> None:
    """Also lines of a thread that serves the request; two requests at once keep theirs apart."""
    written = io.StringIO()
    settings = PoolSettings(
        data_folder=tmp_path, log_format="json" if form == "json" else "text", log_requests=True
    )
    handler = prepare_handler(logging.StreamHandler(written), settings)
    logging.getLogger("pool_server").addHandler(handler)
    try:
        with pool_in_process(tmp_path) as pool:
            for number in (1, 2):
                upload = announce(pool.admin, f"admin/lost-{number}", b"x" * 100).json()
                # A file where there was a folder: it cannot be removed as one.
                place = tmp_path / "storage" / "uploads" / upload["upload_id"]
                place.rmdir()
                place.write_bytes(b"")
                named = {"X-Request-ID": f"mine-{number}"}
                path = f"/api/v1/uploads/{upload['upload_id']}"
                assert pool.admin.delete(path, headers=named).status_code == 204
            # The line of a request is written once its answer is out.
            deleted = '"DELETE"' if form == "json" else "DELETE /api"
            wait_until(lambda: written.getvalue().count(deleted) == 2)
        logging.getLogger("pool_server").warning("nobody asked for this")
    finally:
        logging.getLogger("pool_server").removeHandler(handler)
    lines = [line for line in written.getvalue().splitlines() if "pool_server" in line]
    lost = [line for line in lines if "could not be discarded" in line]
    [alone] = [line for line in lines if "nobody asked" in line]
    assert len(lost) == 2
    if form == "json":
        assert [json.loads(line)["request_id"] for line in lost] == ["mine-1", "mine-2"]
        assert "request_id" not in json.loads(alone)
        [request] = [json.loads(line) for line in lines if "mine-1" in line and '"event"' in line]
        assert (request["request_id"], request["method"]) == ("mine-1", "DELETE")
    else:
        for number, line in enumerate(lost, 1):
            assert f"ERROR pool_server.uploads [mine-{number}] upload " in line
        assert "WARNING pool_server nobody asked" in alone
