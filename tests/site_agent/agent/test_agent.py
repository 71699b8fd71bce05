"""Cycles of an agent against a real pool: pulling, merging, uploading, remembering."""

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
from pool_server.wire.data_use import Term
from pool_server.wire.data_use_rules import today_utc
from site_agent.agent.agent import run_agent
from site_agent.agent.config import read_config
from site_agent.datasets.gaze.generic_layout import write_samples
from site_agent.datasets.imglab_xml import read_imglab_xml
from site_agent.datasets.synthetic.egocentric_clips import ClipSettings, write_clips
from site_agent.errors import AgentError
from site_agent.evaluation.landmarks import evaluate_landmarks
from site_agent.networks.modules import new_network
from site_agent.pool.profiles import host_of
from site_agent.pool.trust import set_trusted_sites
from site_agent.rounds.contract import ContributionRules
from site_agent.rounds.contributing import prepare_contribution
from tests.aggregators.small_models import make_detector, make_predictor
from tests.site_agent.agent.lab import Ear, Lab, Materials, events, make_materials
from tests.site_agent.federated.small_sites import samples_at
from tests.site_agent.live_pool import LivePool, UnreliableLine, live_pool

# The tests share their files: several sites publish the same one.
RIGHTS = "download,merge,redistribute"
FIT = {"starts": 5, "min_faces": 1}
# Two sites with few faces: what the rules keep back by default is tested with rounds.
SMALL = {"least_others": 1, "min_faces": 1, "faces_per_leaf": 0.0}
SMALL_RULES = ContributionRules(least_others=1, min_faces=1, faces_per_leaf=0.0)


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
    lab = Lab(tmp_path / "lab", pool, materials, name, rules=SMALL)
    set_trusted_sites(host_of(pool.url), ["site-b"])
    yield lab
    lab.cancel_rounds()


def error_of(model: Path, materials: Materials) -> float:
    faces = read_imglab_xml(materials.validation)
    return evaluate_landmarks(model, faces, resamples=0).mean_error


def test_what_is_new_is_merged_and_uploaded_once(lab: Lab, materials: Materials) -> None:
    addresses = [lab.share(path, f"face-{n}") for n, path in enumerate(materials.others)]
    report, said = lab.cycle()
    assert (report.uploads, report.failures) == (1, [])
    [event] = events(said, "models_found")
    assert (event["found"], event["taken"]) == (2, 2)
    assert [line["address"] for line in events(said, "model_fetched")] == addresses
    whats = [line["what"] for line in events(said, "evaluated")]
    assert sorted(whats) == ["input", "input", "merged", "own"]
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
    assert version.labels == {"study": lab.name}
    assert version.file_name == f"{lab.name}.dat"
    named = {address for node in lineage.nodes for address in node.addresses}
    assert set(addresses) <= named
    best = lab.workspace / "best" / f"{lab.name}.dat"
    assert file_digest(best) == expected.digest
    assert read_recipe(recipe_path(best)).output is not None

    report, said = lab.cycle()
    assert (report.uploads, report.failures) == (0, [])
    assert events(said, "model_fetched", "evaluated", "merged", "uploading", "best_changed") == []
    assert len(events(said, "up_to_date")) == 1
    assert lab.published() == [f"pool://site-a/{lab.name}@1"]


def test_what_is_not_better_by_the_margin_stays_here(lab: Lab, materials: Materials) -> None:
    lab.share(materials.others[0], "face")
    lab.merge = {"margin_pct": 60}
    report, said = lab.cycle()
    assert report.uploads == 0
    [told] = events(said, "not_better")
    assert told["best"] == min(
        line["value"] for line in events(said, "evaluated") if line["what"] != "merged"
    )
    assert told["value"] > 0.4 * told["best"]
    assert lab.published() == []
    best = error_of(lab.workspace / "best" / f"{lab.name}.dat", materials)
    assert best == pytest.approx(told["best"])
    assert list((lab.workspace / "work").iterdir()) == []
    _, said = lab.cycle()
    assert events(said, "merged", "not_better", "evaluated") == []
    lab.merge = {}
    report, said = lab.cycle()
    assert report.uploads == 1
    assert events(said, "evaluated") == [], "scores are kept"


def test_models_that_do_not_fit_are_left_out_with_the_reason(
    lab: Lab, materials: Materials
) -> None:
    good = lab.share(materials.others[0], "face")
    deep = lab.share(materials.deep, "deep")
    _, said = lab.cycle()
    [refused] = events(said, "model_refused")
    assert refused["address"] == deep
    assert "parts68-levels4 against parts68-levels3" in refused["reason"]
    assert [line["address"] for line in events(said, "model_fetched")] == [good]
    _, said = lab.cycle()
    assert events(said, "model_refused") == []
    # Another own model makes it fit, and it is looked at again.
    lab.merge = {"own_models": [str(materials.deep)]}
    _, said = lab.cycle()
    assert [line["address"] for line in events(said, "model_refused")] == [good]


def test_filters_weights_and_own_models(lab: Lab, materials: Materials, tmp_path: Path) -> None:
    write_model(make_predictor(1), tmp_path / "other.dat")
    lab.share(materials.others[0], "infant", population="infant", images="30")
    lab.share(materials.others[1], "adult", population="adult", images="10")
    with lab.client("site-a") as client:
        client.upload(
            materials.mine, f"site-a/{lab.name}-mine", labels={"study": lab.name, "images": "4"}
        )
        other = tmp_path / "other.dat"
        client.upload(other, f"site-a/{lab.name}-other", labels={"study": lab.name})
    lab.merge = {"labels": [f"study={lab.name}", "population=infant"]}
    report, said = lab.cycle()
    assert (report.uploads, report.failures) == (1, [])
    with lab.client("site-b") as client:
        recipe = client.models.lineage(f"site-a/{lab.name}").recipe
    assert recipe is not None
    assert {entry["digest"] for entry in recipe["inputs"]} == {
        file_digest(materials.mine), file_digest(materials.others[0])
    }  # fmt: skip
    lab.merge["labels"] = [f"study={lab.name}"]
    lab.merge["sites"] = ["site-c"]
    _, said = lab.cycle()
    assert events(said, "models_found")[0]["found"] == 0


def test_terms_of_use_are_kept(lab: Lab, materials: Materials) -> None:
    with lab.client("site-b") as client:
        for number, (path, term) in enumerate(
            zip(materials.others, ("DUO:0000007=ataxia", "DUO:0000007=autism"), strict=True)
        ):
            client.upload(
                path, f"site-b/{lab.name}-{number}", labels={"study": lab.name},
                terms=[Term.parse(term, today_utc())],
            )  # fmt: skip
    report, said = lab.cycle()
    assert report.failures == []
    [refused] = events(said, "model_refused")
    assert refused["address"] == f"pool://site-b/{lab.name}-1@1"
    assert refused["reason"].startswith("terms of use: ")
    assert [line["inputs"] for line in events(said, "merged")] == [2]
    assert report.uploads == 1
    assert events(lab.cycle()[1], "model_refused") == []


@pytest.mark.parametrize("withdrawn", ["face-1", "mine"])
def test_a_withdrawn_model_goes_out_of_the_merged_one(
    lab: Lab, own_pool: LivePool, materials: Materials, withdrawn: str
) -> None:
    models = {"mine": materials.mine, "face-0": materials.others[0], "face-1": materials.others[1]}
    for name, path in models.items():
        lab.share(path, name)
    assert lab.cycle()[0].uploads == 1
    answer = httpx.post(
        f"{own_pool.url}/api/v1/models/site-b/{lab.name}-{withdrawn}/versions/1/withdraw",
        json={"reason": "consent-withdrawn"},
        headers={"Authorization": f"Bearer {own_pool.admin_token}"},
        timeout=540,
    )
    assert answer.is_success, answer.text
    report, _ = lab.cycle()
    assert report.uploads == 1, "what is flagged is nothing to be better than"
    with lab.client("site-b") as client:
        recipe = client.models.lineage(f"site-a/{lab.name}").recipe
    assert recipe is not None
    digests = {entry["digest"] for entry in recipe["inputs"]}
    assert digests == {file_digest(path) for name, path in models.items() if name != withdrawn}


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
    lab.rounds = {"data": [str(materials.faces)], "finish": True}
    report, said = lab.cycle()
    assert (report.contributions, report.failures) == (2, [])
    assert [line["round"] for line in events(said, "contributed")] == rounds
    assert lab.cycle()[0].contributions == 0
    with lab.client("site-a") as client:
        client.rounds.take_back(rounds[1], "site-a")
    report, later = lab.cycle()
    assert report.contributions == 0, "a contribution that was taken back stays back"
    [refused] = events(later, "round_refused")
    assert refused["reason"] == "its contribution was taken back"
    assert lab.cycle()[0].contributions == 0
    said = [line for line in said if line.get("round") != rounds[1]]
    stored = {p.name for p in (lab.folder.parent / "pool").rglob("*") if len(p.name) == 64}
    sent = {line["digest"] for line in events(said, "contributed")}
    assert stored == {file_digest(materials.others[0])} | sent, "no image is among them"

    with lab.client("site-b") as client:
        prepare_contribution(client, rounds[0], materials.validation, rules=SMALL_RULES).send()
    _, said = lab.cycle()
    [finished] = events(said, "round_finished")
    assert finished["round"] == rounds[0]
    with lab.client("site-b") as client:
        assert client.rounds.get(rounds[0]).result == finished["result"]


def test_clips_are_for_rounds_of_networks(lab: Lab, materials: Materials, tmp_path: Path) -> None:
    write_clips(tmp_path / "clips", ClipSettings(persons=1, videos=1, seconds=0.5))
    until, sites = datetime.now(UTC) + timedelta(hours=1), ["site-a", "site-b"]
    address = lab.share(materials.others[0], "base")
    with lab.client("site-b") as client:
        client.rounds.start(address, sites, until, method="leaf-refit", options=FIT)
    lab.rounds = {"data": [str(tmp_path / "clips")]}
    report, said = lab.cycle()
    assert report.failures == []
    [refused] = events(said, "round_refused")
    assert "needs faces, which rounds.data does not name" in refused["reason"]


def test_gaze_data_are_for_rounds_of_networks(
    lab: Lab, materials: Materials, tmp_path: Path
) -> None:
    write_samples(tmp_path / "eyes", [samples_at(1), samples_at(2)])
    network = tmp_path / "network.safetensors"
    write_model(new_network("gaze-lenet"), network)
    until, sites = datetime.now(UTC) + timedelta(hours=1), ["site-a", "site-b"]
    bases = {"leaf-refit": materials.others[0], "fedavg": network}
    addresses = {method: lab.share(path, method) for method, path in bases.items()}
    with lab.client("site-b") as client:
        keys = {
            method: client.rounds.start(
                address, sites, until, method=method, options=FIT if method == "leaf-refit" else {}
            ).round_id
            for method, address in addresses.items()
        }
    lab.rounds = {"data": [str(tmp_path / "eyes")], "persons": ["p02"]}
    report, said = lab.cycle()
    assert (report.contributions, report.failures) == (1, [])
    assert [line["round"] for line in events(said, "contributed")] == [keys["fedavg"]]
    [refused] = events(said, "round_refused")
    assert refused["round"] == keys["leaf-refit"]
    assert "needs faces, which rounds.data does not name" in refused["reason"]
    with lab.client("site-b") as client:
        [contribution] = client.rounds.get(keys["fedavg"]).contributions().values()
    assert contribution.summary["samples"] == len(samples_at(2))
    lab.rounds["data"].append(str(materials.faces))
    assert lab.cycle()[0].contributions == 1, "with faces, too"


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
    lab.rounds = {"data": [str(materials.faces)]}
    host = host_of(lab.pool.url)
    set_trusted_sites(host, [])
    _, said = lab.cycle()
    [refused] = events(said, "round_refused")
    assert refused["reason"].startswith("was started by site-b; to trust that site: ")
    set_trusted_sites(host, ["site-b"])
    report, said = lab.cycle()
    [refused] = events(said, "round_refused")
    assert refused["round"] == key
    assert "has 68 landmarks, the model 9" in refused["reason"], "it is asked again"
    assert report.failures == []
    assert events(lab.cycle()[1], "round_refused", "contributing") == []


def test_a_failure_of_one_task_stops_no_other(lab: Lab, materials: Materials) -> None:
    own_model = lab.folder.parent / "own.dat"
    own_model.write_bytes(materials.mine.read_bytes()[:3000])
    with lab.client("site-b") as client:
        client.upload(materials.others[0], f"site-b/{lab.name}-base")
        until = datetime.now(UTC) + timedelta(hours=1)
        client.rounds.start(f"site-b/{lab.name}-base", ["site-a", "site-b"], until, options=FIT)
    lab.merge, lab.rounds = {"own_models": [str(own_model)]}, {"data": [str(materials.faces)]}
    report, said = lab.cycle()
    assert report.contributions == 1
    [(subject, _)] = report.failures
    [failed] = events(said, "failed")
    assert subject == failed["subject"] == lab.name
    assert "own.dat" in failed["error"]
    assert events(said, "cycle_finished")[0]["failures"] == 1


def test_an_outage_is_waited_out(
    lab: Lab, pool: LivePool, materials: Materials, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.share(materials.others[0], "face")
    waits: list[float] = []
    with UnreliableLine(pool.url) as line:
        line.cut_after_bytes, line.cuts_left = 0, 10**9
        monkeypatch.setenv("POOL_ENDPOINT", line.url)

        def wait(seconds: float) -> None:
            waits.append(seconds)
            if len(waits) == 2:
                line.cuts_left = 0
            if len(waits) == 4:
                raise KeyboardInterrupt

        ear = Ear()
        with pytest.raises(KeyboardInterrupt):
            run_agent(read_config(lab.write_config()), ear.journal(), wait=wait)
    said = ear.said
    assert len(events(said, "pool_unreachable")) == 2
    assert waits[0] < waits[1], "longer each time"
    assert waits[2] <= 0.2
    assert len(events(said, "uploaded")) == 1
    assert said[-1]["event"] == "agent_stopped"
    assert said[-1]["reason"] == "interrupted"


def test_detectors_are_merged_as_well(lab: Lab) -> None:
    own_model = lab.folder.parent / "own.svm"
    write_model(make_detector(1), own_model)
    other, wide = lab.folder.parent / "other.svm", lab.folder.parent / "wide.svm"
    write_model(make_detector(2), other)
    write_model(make_detector(3, window_px=96), wide)
    lab.share(other, "other")
    lab.share(wide, "wide")
    lab.merge = {"method": "mwma", "own_models": [str(own_model)], "upload": False}
    report, said = lab.cycle()
    assert report.failures == []
    [refused] = events(said, "model_refused")
    assert "window96x96" in refused["reason"].split(" against ")[0]
    assert "window80x80" in refused["reason"].split(" against ")[1]
    assert {line["metric"] for line in events(said, "evaluated")} == {"f1"}
    assert len(events(said, "merged")) == 1
    assert (lab.workspace / "best" / f"{lab.name}.svm").is_file()


def test_a_damaged_state_is_told_and_can_be_removed(lab: Lab, materials: Materials) -> None:
    lab.share(materials.others[0], "face")
    assert lab.cycle()[0].uploads == 1
    (lab.workspace / "state.json").write_text("{half")
    with pytest.raises(AgentError, match=r"state\.json: cannot be read"):
        lab.cycle()
    (lab.workspace / "state.json").unlink()
    lab.cycle()
    assert lab.published() == [f"pool://site-a/{lab.name}@1"], "nothing is uploaded twice"
