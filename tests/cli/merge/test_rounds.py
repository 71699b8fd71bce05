"""``poolctl rounds`` against a real server: from the start to the next round."""

import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import numpy as np
import pytest

from aggregators.formats import file_digest, write_model
from aggregators.methods.refitting import RefitSettings
from cli.frame.errors import UsageError
from cli.frame.values import read_moment
from site_agent import PoolClient
from site_agent.attacks.receipt.leaf_sums import build_camera
from site_agent.datasets.imglab_xml import read_imglab_xml
from site_agent.errors import PoolUnreachableError
from site_agent.refinement import RefinementPlan, load_site, read_base, refine_sites
from site_agent.rounds.contract import ContributionRules
from site_agent.rounds.contributing import prepare_contribution
from site_agent.training.ert import ErtSettings, train_ert
from tests.cli.conftest import Run, Terminal
from tests.pool_server.rounds.round_driver import contribution_bytes
from tests.site_agent.face_data import draw_faces
from tests.site_agent.live_pool import LivePool, UnreliableLine, live_pool

# Most rounds here have two sites, which each of them has to accept.
CONTRIBUTE = ("rounds", "contribute", "--least-others", "1")


@pytest.fixture(scope="module")
def pool_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pool")


@pytest.fixture(scope="module")
def pool(pool_folder: Path) -> Iterator[LivePool]:
    with live_pool(pool_folder, part_bytes=1 << 14) as running:
        yield running


@pytest.fixture(scope="module")
def faces(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("faces")
    return {
        site: draw_faces(folder / site, 6, 3, seed)
        for seed, site in enumerate(("site-a", "site-b"), start=1)
    }


@pytest.fixture(scope="module")
def base(pool: LivePool, faces: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("models") / "base.dat"
    settings = ErtSettings(num_trees_per_cascade_level=12, cascade_depth=3, tree_depth=3)
    dataset = read_imglab_xml(faces["site-a"])
    path = train_ert(dataset, output, settings, training_scores=False).model_path
    with PoolClient(pool.url, pool.tokens["site-a"]) as client:
        client.upload(path, "site-a/merged")
    return path


class Site:
    """Runs `poolctl` as one site or another."""

    def __init__(self, pool: LivePool, poolctl: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        self.tokens = pool.tokens | {"admin": pool.admin_token}
        self.url = pool.url
        self._run, self._monkeypatch = poolctl, monkeypatch
        monkeypatch.setenv("POOL_ENDPOINT", pool.url)

    def be(self, name: str) -> Run:
        self._monkeypatch.setenv("POOL_TOKEN", self.tokens[name])
        return self._run


@pytest.fixture
def site(pool: LivePool, poolctl: Run, monkeypatch: pytest.MonkeyPatch, base: Path) -> Site:
    return Site(pool, poolctl, monkeypatch)


START = ("rounds", "start", "--base", "site-a/merged", "--sites", "site-a,site-b")
START += ("--option", "starts=5")


def test_two_rounds_give_what_refine_gives_on_one_machine(
    site: Site, base: Path, faces: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    poolctl = site.be("site-a")
    begun = poolctl(*START, "--deadline", "7d", "--rounds", 2, "--option", "thin=10", "-q")
    key = begun.out.strip()
    with monkeypatch.context() as without_torch:
        # A lab that has faces alone installs [vision].
        without_torch.setitem(sys.modules, "torch", None)
        without_torch.delitem(sys.modules, "site_agent.networks.modules", raising=False)
        site.be("site-b")(*CONTRIBUTE, key, "--data", faces["site-b"], "--json").fails(
            2, "base_not_accepted", "is not one that you trust", "poolctl rounds trust site-a"
        )
    assert poolctl("rounds", "trust", "site-a", "-q").out.split() == ["site-a"]
    for name in ("site-a", "site-b"):
        arguments = (*CONTRIBUTE, key, "--data", faces[name])
        if name == "site-b":
            tried = site.be(name)(*arguments, "--dry-run")
            assert "would send" in tried.out
            assert "each a sum over at least 5 faces" in tried.out
            assert f"to the pool {site.url}" in tried.out
            assert "waiting" in poolctl("rounds", "ls", key).out, "nothing was sent"
        contribution = site.be(name)(*arguments, "--json").data
        assert (contribution["site"], contribution["computed"]) == (name, name == "site-a"), (
            "a trial counts"
        )
        assert contribution["sent_bytes"] == contribution["size_bytes"] > 0
        again = poolctl(*arguments, "--json").data
        assert (again["digest"], again["sent_bytes"]) == (contribution["digest"], 0)
        assert not again["computed"]
    first = poolctl("rounds", "finish", key, "--name", "refined", "--json").data
    test = ("evaluate", "site-b/refined", faces["site-b"], "--set=resamples=0")
    scored = poolctl(*test)
    assert f"your contribution to round {key}" in scored.err, "a refined model flatters too"
    assert poolctl(*test, "--post", "--json").error["code"] == "usage"
    others = poolctl("evaluate", "site-a/merged", faces["site-b"], "--set=resamples=0")
    assert (others.code, others.err.count("was trained on")) == (0, 0)
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("POOL_HOME", str(tmp_path / "elsewhere"))
        replay = ("merge", "--replay", "site-b/refined", "-o", tmp_path / "r.dat", "--json")
        lost = poolctl(*replay).error["message"]
    assert lost.count("it did: poolctl download pool://site-b/refined@1") == 2

    following = first["round"]["successor"]
    for name in ("site-a", "site-b"):
        contribution = site.be(name)(*CONTRIBUTE, following, "--data", faces[name])
        assert contribution.code == 0, contribution.err
    assert "rounds finish" in contribution.out
    second = poolctl("rounds", "finish", following, "--json").data
    assert second["version"]["name"] == "refined", "the base's name when none is given"

    forest = read_base(base)
    sources = {
        name: load_site(read_imglab_xml(path), forest.part_count) for name, path in faces.items()
    }
    plan = RefinementPlan(RefitSettings(starts=5, thin=10), rounds=2)
    refined = refine_sites(base, sources, tmp_path / "refined.dat", plan)
    assert second["version"]["digest"] == refined.digest, "to the last bit"


def test_a_site_takes_its_contribution_back(site: Site, faces: dict[str, Path]) -> None:
    poolctl = site.be("site-a")
    key = poolctl(*START, "--deadline", "1h", "-q").out.strip()
    arguments = (*CONTRIBUTE, key, "--data")
    assert poolctl(*arguments, faces["site-a"]).code == 0
    poolctl(*arguments, faces["site-b"], "--json").fails(7, f"poolctl rounds take-back {key}")
    assert poolctl("rounds", "take-back", key).code == 2, "nobody can be asked here"
    round_ = poolctl("rounds", "take-back", key[:9], "-y", "--json").data["round"]
    assert "site-a" in [
        site["site"] for site in round_["participants"] if site["state"] == "waiting"
    ]
    assert poolctl("rounds", "take-back", key, "-y", "--json").code == 4
    assert poolctl("rounds", "take-back", key, "--site", "../x", "-y").code == 2
    both = poolctl(*arguments, faces["site-b"], "--data", faces["site-a"])
    assert both.code == 0, both.err
    poolctl("rounds", "finish", key, "--json").fails(7, "conflict", "site-b", "--early")
    assert site.be("site-b")("rounds", "finish", key, "--early", "--json").code == 3
    site.be("site-a")("rounds", "finish", key, "--early", "--json").fails(
        7, "conflict", "the result of one would reveal it"
    )


def test_a_person_at_a_terminal_sees_what_is_sent_and_is_asked(
    site: Site, faces: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    poolctl = site.be("site-a")
    key = poolctl(*START, "--deadline", "1h", "-q").out.strip()
    arguments = (*CONTRIBUTE, key, "--data", faces["site-a"])
    keyboard, terminal = os.openpty()
    with os.fdopen(terminal) as screen, os.fdopen(keyboard, "w") as typed:
        monkeypatch.setattr("sys.stdin", screen)
        print("n", file=typed, flush=True)
        poolctl(*arguments).fails(
            1, "would send", "changes of", "only with those of at least 1 other site"
        )
        assert "site-a" in poolctl("rounds", "ls", key, "--json").data["result_address"]
        assert site.be("site-a")("rounds", "take-back", key, "-y").code == 4, "nothing was sent"
        print("y", file=typed, flush=True)
        assert poolctl(*arguments, "--json").data["sent_bytes"] > 0
        assert "Send it?" not in poolctl(*arguments).err, "the pool has it"


def test_a_refined_model_is_made_again_without_a_withdrawn_one(
    site: Site, base: Path, faces: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journey of the README: merge, refine, withdraw, successor, refine again."""
    monkeypatch.chdir(tmp_path)
    model = read_base(base)
    for name, seed in (("site-a", 1), ("site-b", 2)):
        moved = replace(model, leaves=model.leaves + np.float32(0.001 * seed))
        write_model(moved, tmp_path / f"{name}.dat")
        assert site.be(name)("upload", f"{name}.dat", "--name", "face").code == 0
    poolctl = site.be("site-b")
    merging = ("merge", "wba-cascade", "site-a.dat", "site-b.dat", "-o", "merged.dat")
    assert poolctl(*merging).code == 0
    assert poolctl("upload", "merged.dat", "--name", "journey").code == 0
    start = ("rounds", "start", "--base", "site-b/journey", "--sites", "site-a,site-b")
    key = poolctl(*start, "--deadline", "1h", "-q").out.strip()
    merged = read_base(Path("merged.dat"))
    for seed, name in enumerate(("site-a", "site-b")):
        path = tmp_path / f"{name}.contribution"
        path.write_bytes(contribution_bytes(merged, seed))
        with PoolClient(site.url, site.tokens[name]) as client:
            client.rounds.send_contribution(key, path, name, least_others=1)
        path.unlink()
    assert poolctl("keys", "create").code == 0
    refined = poolctl("rounds", "finish", key, "--json").data["version"]
    assert refined["signed_by"] is not None, "by the site, as what the pool gave it"

    other = poolctl(
        *start[:3], "site-b/journey@1", *start[4:], "--deadline", "1h", "-q"
    ).out.strip()
    site.be("site-a")("models", "withdraw", "site-a/face", "--reason", "quality", "-y")
    poolctl = site.be("site-b")
    poolctl(*CONTRIBUTE, other, "--data", faces["site-b"], "--json").fails(
        7, "--despite-withdrawal"
    )
    on_pool = ("merge", "wba-cascade", "site-b/journey@1")
    for arguments in (("upload", "merged.dat"), on_pool):
        poolctl(*arguments, "--name", "tainted", "--json").fails(7, "--despite-withdrawal")
    assert poolctl(*on_pool, "--name", "tainted", "--despite-withdrawal", "--wait").code == 0
    again = ("merge", "--replay", "pool://site-b/journey", "--without", "site-a/face@1")
    outcome = poolctl(*again, "-o", "successor.dat")
    assert outcome.code == 0, outcome.err
    assert "it is not refined" in outcome.out
    sent = poolctl("upload", "successor.dat", "--name", "journey", "--json").data["version"]
    assert sent["flags"] == []


def test_what_was_computed_waits_for_the_pool(
    site: Site, pool: LivePool, faces: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    poolctl = site.be("site-a")
    key = poolctl(*START, "--deadline", "1h", "-q").out.strip()
    arguments = (*CONTRIBUTE, key, "--data", faces["site-a"], "--json")
    with UnreliableLine(pool.url) as line:
        with PoolClient(line.url, pool.tokens["site-a"]) as client:
            client.download("site-a/merged")
        line.cut_after_bytes, line.cuts_left = 50_000, 1000
        with PoolClient(line.url, pool.tokens["site-a"], attempts=1) as client:
            with pytest.raises(PoolUnreachableError):
                prepare_contribution(
                    client, key, faces["site-a"], rules=ContributionRules(least_others=1)
                ).send()
            line.cuts_left = 0
            [kept] = (client.cache.folder / "rounds").rglob(f"{key}/*.contribution")
        digest = file_digest(kept)
        monkeypatch.setenv("POOL_ENDPOINT", line.url)
        contribution = poolctl(*arguments).data
        assert kept.exists(), "the pool's storage may lose it while the round goes on"
        assert poolctl("rounds", "cancel", key, "--yes").code == 0
        assert poolctl(*arguments).data["sent_bytes"] == 0
    assert (contribution["computed"], contribution["digest"]) == (False, digest)
    assert 0 < contribution["sent_bytes"] < contribution["size_bytes"], "some parts had arrived"
    assert not kept.exists()


def test_who_may_do_what(site: Site, faces: dict[str, Path]) -> None:
    key = site.be("site-a")(*START, "--deadline", "1h", "-q").out.strip()
    arguments = (*CONTRIBUTE, key, "--data", faces["site-a"], "--json")
    assert site.be("reader")(*arguments).code == 3
    assert site.be("site-b")("rounds", "cancel", key, "-y", "--json").code == 3
    poolctl = site.be("site-a")
    assert poolctl("rounds", "cancel", key).code == 2, "nobody can be asked here"
    assert poolctl("rounds", "cancel", key, "-y", "--json").data["round"]["state"] == "cancelled"
    assert poolctl(*arguments).code == 7
    assert poolctl("rounds", "ls", "../models", "--json").code == 2
    wrong = poolctl("rounds", "ls", "4f1d", "--json")
    assert "no round begins with" in wrong.error["message"]
    assert "rounds ls" in wrong.error["hint"]


def test_a_site_lets_no_round_go_below_its_floors_or_against_its_trust(
    site: Site, faces: dict[str, Path], tmp_path: Path, base: Path
) -> None:
    poolctl = site.be("site-a")
    camera = tmp_path / "camera.dat"
    trained = read_base(base)
    write_model(build_camera(trained.initial_shape, (-40.0, -40.0)), camera)
    assert poolctl("upload", camera, "--name", "camera", "-q").code == 0
    start = ("rounds", "start", "--base", "site-a/camera", "--sites", "site-a,site-b")
    loose = ("--option", "starts=1", "--option", "min_faces=1", "--deadline", "1h", "-q")
    key = poolctl(*start, *loose).out.strip()
    poolctl = site.be("site-b")
    poolctl("rounds", "trust", "site-a", "--remove", "-q")
    arguments = (*CONTRIBUTE, key, "--data", faces["site-b"], "--json")
    refused = poolctl(*arguments)
    assert (refused.code, refused.error["code"]) == (3, "contribution_withheld")
    for reason in ("1 starting shapes", "sums over 1 faces", "no recipe", "not one that you trust"):
        assert reason in refused.error["message"]
    assert f"--accept {file_digest(camera)}" in refused.error["hint"]

    floors = ("--set=min_starts=1", "--set=min_faces=1")
    approval = ("--accept", "site-a/camera@1")
    assert "no terminal" in poolctl(*arguments, *floors, *approval).error["message"]
    other = poolctl(*arguments, *floors, "--accept", "site-a/merged@1", "--yes")
    assert "the base of the round is site-a/camera@1" in other.error["message"]
    poolctl(*arguments, *floors).fails(2, "base_not_accepted", "bright single pixels")
    forced = poolctl(*arguments, *floors, *approval, "--yes")
    assert forced.code == 3, "what a camera looks like is refused whoever approves of it"
    assert "not as training makes models" in forced.error["message"]
    assert "bright single pixels" in forced.err
    assert poolctl("rounds", "ls", key, "--json").data["participants"][1]["state"] == "waiting"


def test_a_forced_contribution_is_for_the_pool_alone(  # noqa: PLR0917
    site: Site,
    pool: LivePool,
    faces: dict[str, Path],
    tmp_path: Path,
    base: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    camera = tmp_path / "disguised.dat"
    write_model(build_camera(read_base(base).initial_shape, None), camera)
    poolctl = site.be("site-a")
    assert poolctl("upload", camera, "--name", "disguised", "-q").code == 0
    start = ("rounds", "start", "--base", "site-a/disguised", "--sites", "site-a,site-b")
    key = poolctl(*start, "--option", "starts=5", "--deadline", "1h", "-q").out.strip()
    poolctl = site.be("site-b")
    poolctl("rounds", "trust", "site-a", "--remove", "-q")
    arguments = (*CONTRIBUTE, key, "--data", faces["site-b"], "--json")
    assert "not one that you trust" in poolctl(*arguments).error["message"]
    approval = ("--accept", "site-a/disguised@1")
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stdin", Terminal())
        asked = poolctl(*arguments, "--dry-run")
        assert (asked.code, asked.error["code"]) == (2, "base_not_accepted"), "it asks nothing"
        assert "[y/N]" not in asked.err
        assert poolctl(*arguments, "--dry-run", *approval).data["sent_bytes"] == 0
    assert poolctl(*arguments).error["code"] == "base_not_accepted", "it accepts nothing"
    sent = poolctl(*arguments, *approval, "--yes").data
    assert sent["sent_bytes"] > 0
    assert poolctl(*arguments).data["computed"] is False, "a base is accepted once"
    with httpx.Client(base_url=pool.url, timeout=540) as other:
        other.headers["Authorization"] = f"Bearer {pool.tokens['site-a']}"
        for path in (f"rounds/{key}/contributions/site-b/content", f"rounds/{key}/contributions"):
            assert other.get(f"/api/v1/{path}").status_code in {404, 405}
    address = f"site-a/disguised@sha256:{sent['digest']}"
    assert site.be("site-a")("download", address, "--json").code == 4


def test_rounds_that_cannot_be_held(site: Site) -> None:
    poolctl = site.be("site-a")
    start = ("rounds", "start", "--sites", "site-a,site-b", "--deadline", "7d", "--json")
    assert poolctl(*start, "--base", "site-a/none").code == 4
    assert poolctl(*start, "--base", "site-a/merged", "--method", "mwma").code == 2
    assert poolctl(*START, "--deadline", "2020-01-01", "--json").code == 2


def test_a_span_counts_from_the_clock_of_the_pool(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool_now = datetime.now(UTC) + timedelta(days=30)
    monkeypatch.setattr(PoolClient, "now", lambda _: pool_now)
    begun = site.be("site-a")(*START, "--deadline", "1d", "--json").data
    assert datetime.fromisoformat(begun["deadline"]) == pool_now + timedelta(days=1)


def test_deadlines_are_spans_or_days() -> None:
    now = datetime(2026, 3, 1, 12, tzinfo=UTC)
    assert read_moment("7d", "--deadline", now, ahead=True) - now == timedelta(days=7)
    day = read_moment("2026-12-01", "--deadline", now, ahead=True)
    assert day == datetime(2026, 12, 1, 23, 59, 59, tzinfo=UTC)
    with pytest.raises(UsageError, match="--deadline"):
        read_moment("tomorrow", "--deadline", now, ahead=True)
