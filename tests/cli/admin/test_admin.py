"""``poolctl admin``, invitations and sharing, against a real server."""

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from aggregators.formats import write_model
from site_agent.pool.resources.administration import accept_invitation
from tests.aggregators.small_models import make_detector
from tests.cli.conftest import Run
from tests.site_agent.live_pool import LivePool

Be = Callable[[str], Run]


@pytest.fixture
def be(pool: LivePool, poolctl: Run, monkeypatch: pytest.MonkeyPatch) -> Be:
    """Return `poolctl` as the holder of a token."""
    monkeypatch.setenv("POOL_ENDPOINT", pool.url)

    def be(token: str) -> Run:
        monkeypatch.setenv("POOL_TOKEN", token)
        return poolctl

    return be


def test_inviting_somebody_who_comes(
    pool: LivePool, be: Be, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin = be(pool.admin_token)
    arguments = ("admin", "people", "invite", "site-a", "--role", "curator")
    made = admin(*arguments, "--email", "ada@lab.example", "--json").data
    monkeypatch.delenv("POOL_TOKEN")
    accept = ("auth", "login", pool.url, "--name", "ada", "--display-name", "Ada")
    assert admin(*accept).code == 2, "nobody can be asked here"
    monkeypatch.setattr("sys.stdin", io.StringIO(made["secret"] + "\n"))
    shown = admin(*accept, "--token-stdin", "--json")
    assert (shown.data["user"], shown.data["role"], shown.data["name"]) == (
        "ada", "curator", "ada",
    )  # fmt: skip
    assert "secret" not in shown.data
    assert "curator, user ada" in admin("auth", "whoami").out, "the new login is kept"
    monkeypatch.setattr("sys.stdin", io.StringIO(made["secret"] + "\n"))
    admin(*accept, "--token-stdin", "--json").fails(3, "forbidden")
    admin = be(pool.admin_token)
    [invitation] = admin("admin", "people", "ls", "invitations", "--json").data["items"]
    assert invitation["used_by"] == "ada"
    assert made["secret"] not in json.dumps(invitation)
    assert "site-a/ada" in admin("admin", "people", "ls", "users", "-q").out.split()


def test_shutting_somebody_out(pool: LivePool, be: Be) -> None:
    def come(run: Run, name: str, *arguments: str) -> str:
        made = run("admin", "people", "invite", "site-b", *arguments, "-q").out.strip()
        return accept_invitation(pool.url, made, name).secret

    site_admin = come(be(pool.admin_token), "eva", "--role", "admin")
    eva = be(site_admin)
    made = eva("admin", "people", "token", "site-b", "eva-laptop", "--role", "admin", "--json")
    laptop, told = made.data["secret"], made.err
    assert "user eva" in told
    nightly = eva("admin", "people", "token", "site-b", "nightly", "--for-machine", "--json").data
    assert nightly["user"] is None
    eva("admin", "people", "token", "site-b", "x", "--for-machine", "--user", "eva").fails(
        2, "not both"
    )
    eva("admin", "people", "invite", "site-b", "--provider", "uni").fails(
        2, "Error: an invitation for sign_on needs the person's subject or email"
    )
    come(eva, "finn")
    ls = be(pool.admin_token)("admin", "people", "ls", "tokens", "--json").data["items"]
    assert {t["name"] for t in ls if t["made_by"] == "site-b/eva"} == {"eva-laptop", "nightly"}

    admin = be(pool.admin_token)
    disable = ("admin", "people", "change", "site-b/eva", "--disable")
    admin(*disable).fails(2, "Disable user site-b/eva with all tokens", "give --yes")
    assert be(laptop)("models", "ls").code == 0, "nothing was done yet"
    shown = be(pool.admin_token)(*disable, "-y").out
    assert f"poolctl admin people revoke {nightly['token_id']}" in shown
    assert "site-b/eva-laptop" not in shown
    for token in (site_admin, laptop):
        assert be(token)("models", "ls", "--json").error["code"] == "forbidden"
    assert be(nightly["secret"])("models", "ls").code == 0
    admin = be(pool.admin_token)
    assert admin("admin", "people", "revoke", nightly["token_id"], "-y").code == 0
    data = admin(*disable, "-y", "--json").data
    assert data["disabled_at"] is not None
    assert data["staying_tokens"] == []


def test_sites_that_are_changed_limited_and_suspended(pool: LivePool, be: Be) -> None:
    admin = be(pool.admin_token)
    admin("admin", "sites", "create", "site-q", "--quota", "1.5GB")
    assert admin("admin", "sites", "change", "site-q", "--contact", "room 3").code == 0
    admin("admin", "sites", "change", "site-r", "--contact", "room 4").fails(4)
    token = admin("admin", "people", "token", "site-q", "desk", "-q").out.strip()
    [usage] = [
        item
        for item in admin("admin", "sites", "ls", "--usage", "--json").data["items"]
        if item["site"] == "site-q"
    ]
    assert (usage["quota_bytes"], usage["tokens"]) == (1_500_000_000, 1)
    assert admin("admin", "sites", "change", "site-q", "--quota", "2MB").code == 0
    assert admin("admin", "sites", "change", "site-q", "--quota", "none").code == 0
    assert admin("admin", "sites", "change", "site-q", "--quota", "much").code == 2
    assert admin("admin", "sites", "change", "site-q", "--suspend", "-y").code == 0
    assert "suspended" in admin("admin", "sites", "ls").out
    be(token)("models", "ls", "--json").fails(3, "forbidden")
    assert be(pool.admin_token)("admin", "sites", "change", "site-q", "--resume").code == 0
    assert be(token)("models", "ls").code == 0


def test_sharing_a_model(pool: LivePool, be: Be, tmp_path: Path) -> None:
    model = tmp_path / "mine.svm"
    write_model(make_detector(11), model)
    owner, address = be(pool.tokens["site-a"]), "site-a/shared"
    sent = owner("upload", model, "--name", "shared", "--visibility", "private")
    assert "private" in sent.out
    assert be(pool.tokens["site-b"])("models", "info", address).code == 4
    owner = be(pool.tokens["site-a"])
    share = ("models", "share", address)
    nobody = owner(*share, "--visibility", "sites", "--json")
    assert "needs --with SITE" in nobody.error["message"]
    shared = owner(*share, "--with", "site-b=download,merge", "--json").data
    assert shared["visibility"] == "sites"
    assert shared["sites"] == [{"site": "site-b", "rights": ["see", "download", "merge"]}]
    other = be(pool.tokens["site-b"])
    assert other("models", "info", address).code == 0
    assert other(*share).out.split("you may")[1].strip() == "see, download, merge"
    forbidden = other(*share, "--visibility", "consortium", "--json")
    assert forbidden.error["code"] == "forbidden"
    owner = be(pool.tokens["site-a"])
    owner(*share, "--visibility", "consortium", "--rights", "")
    be(pool.tokens["site-b"])("download", address, "-o", tmp_path / "x.svm", "--json").fails(
        3, "download"
    )
    for wrong in (
        ("--rights", "merge"),
        ("--with", "site-b", "--visibility", "private"),
        ("--with", "site-b=everything"),
    ):
        assert be(pool.tokens["site-a"])(*share, *wrong).code == 2
