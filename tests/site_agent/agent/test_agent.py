"""Cycles of an agent against a real pool: what is pulled, merged, uploaded, remembered."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import numpy as np
import pytest

from aggregators.formats import file_digest, read_model, write_model
from aggregators.methods import merge, read_recipe, recipe_path
from aggregators.methods.wba import reanchor
from aggregators.models import ShapePredictor
from site_agent.agent import Stopped, plan_cycle, read_config, run_agent
from site_agent.datasets.imglab_xml import read_imglab_xml
from site_agent.evaluation import evaluate_landmarks
from site_agent.rounds.contract import ContributionRules
from site_agent.rounds.contributing import contribute_to_round
from tests.site_agent.agent.lab import Ear, Lab, Materials, events, make_materials
from tests.site_agent.live_pool import LivePool, UnreliableLine, live_pool

# The tests share their files: several sites publish the same one.
RIGHTS = "download,merge,redistribute"
FIT = {"starts": 5, "min_faces": 1}
# Two sites with few faces: what the rules keep back by default is tested with rounds.
SMALL = {"least_others": 1, "min_faces": 1, "faces_per_leaf": 0}
SMALL_RULES = ContributionRules(least_others=1, min_faces=1, faces_per_leaf=0.0)
JOINING = {"started_by": ["site-b"], "trust": ["site-b"], **SMALL}


@pytest.fixture(scope="module")
def materials(tmp_path_factory: pytest.TempPathFactory) -> Materials:
    return make_materials(tmp_path_factory.mktemp("materials"))


@pytest.fixture(scope="module")
def shared_pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LivePool]:
    """A pool for all tests that leave it as good as they found it."""
    with live_pool(tmp_path_factory.mktemp("pool"), part_bytes=1 << 16, rights=RIGHTS) as running:
        yield running


@pytest.fixture
def own_pool(tmp_path: Path) -> Iterator[LivePool]:
    """A pool for one test alone."""
    with live_pool(tmp_path / "pool", part_bytes=1 << 16, rights=RIGHTS) as running:
        yield running


@pytest.fixture
def pool(request: pytest.FixtureRequest) -> LivePool:
    alone = "own_pool" in request.fixturenames
    running: LivePool = request.getfixturevalue("own_pool" if alone else "shared_pool")
    return running


@pytest.fixture
def lab(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    pool: LivePool,
    materials: Materials,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Lab]:
    monkeypatch.setenv("POOL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("POOL_ENDPOINT", pool.url)
    monkeypatch.setenv("POOL_TOKEN", pool.tokens["site-a"])
    name = request.node.name.removeprefix("test_").replace("_", "-")[:40]
    lab = Lab(tmp_path / "lab", pool, materials, name)
    yield lab
    lab.cancel_rounds()


def error_of(model: Path, materials: Materials) -> float:
    faces = read_imglab_xml(materials.validation)
    return evaluate_landmarks(model, faces, resamples=0).mean_error


def test_what_is_new_is_merged_and_uploaded_once(lab: Lab, materials: Materials) -> None:
    addresses = [lab.share(path, f"face-{n}") for n, path in enumerate(materials.others)]
    lab.merge = {"upload_labels": {"population": "infant"}, "against": ["own", "published"]}
    report, said = lab.cycle()
    assert (report.uploads, report.failures) == (1, [])
    [found] = events(said, "models_found")
    assert (found["found"], found["taken"], found["new"]) == (2, 2, 2)
    assert [line["address"] for line in events(said, "model_fetched")] == addresses
    whats = [line["what"] for line in events(said, "evaluated")]
    assert sorted(whats) == ["merged", "own"]
    [uploaded] = events(said, "uploaded")
    assert uploaded["address"] == f"pool://site-a/{lab.name}@1"

    expected = merge(
        "wba-cascade", [materials.mine, *materials.others], options={"step": 1.1},
        output=lab.folder / "expected.dat",
    )  # fmt: skip
    assert uploaded["digest"] == expected.digest
    assert uploaded["value"] == pytest.approx(error_of(lab.folder / "expected.dat", materials))
    with lab.client("site-b") as client:
        version = client.version(f"site-a/{lab.name}")
        lineage = client.models.lineage(f"site-a/{lab.name}")
    assert version.digest == expected.digest
    assert version.metrics["mean_error"] == pytest.approx(uploaded["value"])
    assert version.labels == {"population": "infant"}
    assert version.file_name == f"{lab.name}.dat"
    named = {address for node in lineage.nodes for address in node.addresses}
    assert set(addresses) <= named
    best = lab.workspace / "best" / f"{lab.name}.dat"
    assert file_digest(best) == expected.digest
    assert read_recipe(recipe_path(best)).output is not None

    report, said = lab.cycle()
    assert (report.uploads, report.failures) == (0, [])
    assert events(said, "model_fetched", "evaluated", "merged", "uploading", "best_changed") == []
    [told] = events(said, "up_to_date")
    assert told["value"] == pytest.approx(uploaded["value"])
    assert lab.published() == [f"pool://site-a/{lab.name}@1"]


def test_a_withdrawn_model_goes_out_of_the_merged_one(
    lab: Lab, own_pool: LivePool, materials: Materials
) -> None:
    lab.merge = {"margin": 0.0, "against": ["published"]}
    for number, path in enumerate(materials.others):
        lab.share(path, f"face-{number}")
    assert lab.cycle()[0].uploads == 1
    answer = httpx.post(
        f"{own_pool.url}/api/v1/models/site-b/{lab.name}-face-1/versions/1/withdraw",
        json={"reason": "consent-withdrawn"},
        headers={"Authorization": f"Bearer {own_pool.admin_token}"},
        timeout=60,
    )
    assert answer.is_success, answer.text
    report, _ = lab.cycle()
    assert report.uploads == 1, "what is flagged is nothing to be better than"
    with lab.client("site-b") as client:
        recipe = client.models.lineage(f"site-a/{lab.name}").recipe
    assert recipe is not None
    digests = {entry["digest"] for entry in recipe["inputs"]}
    assert digests == {file_digest(materials.mine), file_digest(materials.others[0])}


def test_invitations_are_answered_once_and_nothing_but_sums_is_sent(
    lab: Lab, own_pool: LivePool, materials: Materials
) -> None:
    base, until = f"site-b/{lab.name}-base", datetime.now(UTC) + timedelta(hours=1)
    with lab.client("site-b") as client:
        client.upload(materials.others[0], base)
        rounds = [
            client.rounds.start(
                base, ["site-a", "site-b"], until, options=FIT | {"starts": s}
            ).round_id
            for s in (5, 6)
        ]
    lab.rounds = {"data": str(materials.faces), **JOINING, "finish": True}
    report, said = lab.cycle()
    assert (report.contributions, report.failures) == (2, [])
    assert [line["round"] for line in events(said, "contributed")] == rounds
    assert lab.cycle()[0].contributions == 0
    with lab.client("site-a") as client:
        client.rounds.take_back(rounds[1], "site-a")
    for _ in range(2):
        assert lab.cycle()[0].contributions == 0, "what somebody took back stays back"
    plan = plan_cycle(read_config(lab.write_config()))
    assert [each.reason for each in plan.rounds] == ["its contribution was taken back"]
    said = [line for line in said if line.get("round") != rounds[1]]
    stored = {p.name for p in (lab.folder.parent / "pool").rglob("*") if len(p.name) == 64}
    sent = {line["digest"] for line in events(said, "contributed")}
    assert stored == {file_digest(materials.others[0])} | sent, "no image is among them"

    with lab.client("site-b") as client:
        contribute_to_round(client, rounds[0], materials.validation, rules=SMALL_RULES)
    _, said = lab.cycle()
    [finished] = events(said, "round_finished")
    assert finished["round"] == rounds[0]
    with lab.client("site-b") as client:
        assert client.rounds.get(rounds[0]).result == finished["result"]


def test_rounds_that_are_not_wanted_or_do_not_fit(lab: Lab, materials: Materials) -> None:
    model = read_model(materials.others[0])
    assert isinstance(model, ShapePredictor)
    path = lab.folder.parent / "few.dat"
    shape = np.ascontiguousarray(model.initial_shape[:9])
    few = replace(reanchor(model, shape), leaves=model.leaves[:, :9].copy())
    write_model(few, path)
    until = datetime.now(UTC) + timedelta(hours=1)
    with lab.client("site-b") as client:
        client.upload(path, f"site-b/{lab.name}-few")
        key = client.rounds.start(
            f"site-b/{lab.name}-few", ["site-a", "site-b"], until, options=FIT
        ).round_id
    lab.rounds = {
        "data": str(materials.faces),
        "started_by": ["site-c"],
        "least_others": 1,
        "min_faces": 1,
    }
    _, said = lab.cycle()
    [refused] = events(said, "round_refused")
    assert refused["reason"] == "was started by site-b, and 'started_by' names site-c"
    lab.rounds["started_by"] = ["site-b"]
    [refused] = events(lab.cycle()[1], "round_refused")
    assert "its site site-b is not one that you trust" in refused["reason"]
    lab.rounds |= JOINING
    [planned] = plan_cycle(read_config(lab.write_config())).rounds
    assert planned.action == "contribute", "as the rules are others now"
    report, said = lab.cycle()
    [refused] = events(said, "round_refused")
    assert refused["round"] == key
    assert "has 68 landmarks, the model 9" in refused["reason"], "it is asked again"
    assert report.failures == []
    assert events(lab.cycle()[1], "round_refused", "contributing") == []


def test_an_outage_is_waited_out(
    lab: Lab, pool: LivePool, materials: Materials, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.share(materials.others[0], "face")
    lab.merge = {"margin": 0.0, "against": ["own"]}
    waits: list[float] = []
    with UnreliableLine(pool.url) as line:
        line.cut_after_bytes, line.cuts_left = 0, 10**9
        monkeypatch.setenv("POOL_ENDPOINT", line.url)

        def wait(seconds: float) -> None:
            waits.append(seconds)
            if len(waits) == 2:
                line.cuts_left = 0
            if len(waits) == 4:
                raise Stopped("enough")

        ear = Ear()
        with pytest.raises(Stopped):
            run_agent(read_config(lab.write_config()), ear.journal(), wait=wait)
    said = ear.said
    assert len(events(said, "pool_unreachable")) == 2
    assert waits[0] < waits[1], "longer each time"
    assert waits[2] <= 0.2
    assert len(events(said, "uploaded")) == 1
    assert said[-1]["event"] == "agent_stopped"
    assert said[-1]["reason"] == "enough"
