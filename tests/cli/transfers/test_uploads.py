"""``poolctl uploads``: where a site finds the uploads that block further ones."""

from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.pool_server.pool_driver import announce, pool_in_thread


def test_a_site_at_its_limit_ends_what_nobody_goes_on_with(
    poolctl: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pool_in_thread(tmp_path / "pool", max_open_uploads_per_site=2) as pool:
        monkeypatch.setenv("POOL_ENDPOINT", pool.url)
        monkeypatch.setenv("POOL_TOKEN", pool.secret("site-a", "contributor"))
        assert "no uploads" in poolctl("uploads").out
        member = pool.member("site-a")
        old, new = (
            announce(member, f"site-a/{name}", b"x" * 2000).json()["upload_id"]
            for name in ("old", "new")
        )
        refused = announce(member, "site-a/third", b"x").json()["error"]
        assert "poolctl uploads" in refused["hint"]
        shown = poolctl("uploads")
        assert "site-a/old" in shown.out
        assert "2.0 kB" in shown.out
        assert poolctl("uploads", "-q").out.split() == [new, old]
        assert poolctl("uploads", "--limit", "1", "--json").data["items"][0]["name"] == "new"
        assert poolctl("uploads", old[:9], "--cancel").code == 0
        assert poolctl("uploads", old, "--cancel", "--json").error["code"] == "not_found"
        assert poolctl("uploads", "site-a/new", "--cancel").code == 2
        assert announce(member, "site-a/third", b"x").status_code == 201
        assert poolctl("uploads", "--site", "admin", "--json").error["code"] == "forbidden"
