"""Networks for faces, phones and near-eye cameras, and a lab's own, wherever sites train."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from aggregators.formats import file_digest, read_model, write_model
from aggregators.models import StateDict
from site_agent.datasets.gaze.check import open_gaze
from site_agent.datasets.synthetic.drawing import write_layout
from site_agent.datasets.synthetic.eye_patches.dataset import EyeDrawing
from site_agent.work import no_progress
from tests.cli.conftest import Run
from tests.cli.merge.test_rounds import Site
from tests.site_agent.live_pool import LivePool

OWN = "tests.site_agent.networks.lab_network:Network"
TRAP = "tests.site_agent.networks.trap:Network"
LAYOUTS = {
    "near-eye": "nvgaze",
    OWN: "nvgaze",
    "near-eye-pupil": "lpw",
    "gaze-face-resnet18": "mpiifacegaze",
    "itracker": "gazecapture",
}
UNITS = {"near-eye-pupil": "px", "itracker": "cm"}
OPTIONS = ("--option", "epochs=1", "--option", "batch_size=8")
LARGE = [
    pytest.param(name, marks=pytest.mark.slow)
    for name in ("near-eye-pupil", "gaze-face-resnet18", "itracker")
]


@pytest.fixture(autouse=True)
def nothing_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POOL_NETWORKS", "")


@pytest.fixture
def site(pool: LivePool, poolctl: Run, monkeypatch: pytest.MonkeyPatch) -> Site:
    return Site(pool, poolctl, monkeypatch)


def drawn(folder: Path, architecture: str, persons: int = 3, frames: int = 16) -> Path:
    """Draw persons in the layout of an architecture."""
    settings = EyeDrawing(layout=LAYOUTS[architecture], persons=persons, frames_per_person=frames)  # type: ignore[arg-type]
    write_layout(folder, replace(settings, skews=replace(settings.skews, amount=1.0)), no_progress)
    return folder


@pytest.mark.parametrize(
    "architecture", [OWN, pytest.param("near-eye", marks=pytest.mark.slow), *LARGE]
)
def test_a_simulation_scores_them_in_their_unit(
    poolctl: Run, tmp_path: Path, architecture: str
) -> None:
    data = drawn(tmp_path / "data", architecture)
    arguments = ("federated", "simulate", data, "--architecture", architecture, "--rounds", 1)
    arguments += ("--method", "fedavg", "--holdout", "persons", *OPTIONS, "-o", tmp_path / "run")
    shown = poolctl(*arguments)
    assert shown.code == 0, shown.err
    assert f" {UNITS.get(architecture, 'degrees')}, " in shown.out.splitlines()[0]


@pytest.mark.parametrize("architecture", ["near-eye", *LARGE])
def test_a_pool_holds_rounds_of_them(site: Site, tmp_path: Path, architecture: str) -> None:
    poolctl, data = site.be("site-a"), drawn(tmp_path / "data", architecture, 2)
    key = start(poolctl, architecture, tmp_path / f"{architecture}.safetensors")
    for name, person in zip(("site-a", "site-b"), open_gaze(data).persons, strict=True):
        sent = contribute(site.be(name), key, data, person)
        assert sent.code == 0, sent.err
    ended = site.be("site-a")("rounds", "finish", key, "--name", f"{architecture}-1")
    assert ended.code == 0, ended.err
    scored = poolctl("evaluate", f"site-a/{architecture}-1", data, "--json")
    assert scored.code == 0, scored.err
    unit = UNITS.get(architecture, "deg")
    assert scored.data["items"][0][f"mean_error_{unit}"] > 0


def start(poolctl: Run, architecture: str, base: Path) -> str:
    """Upload a new network, and start open rounds from it."""
    made = poolctl("federated", "init", "--architecture", architecture, "-o", base)
    assert made.code == 0, made.err
    return start_from(poolctl, base)


def start_from(poolctl: Run, base: Path) -> str:
    assert poolctl("upload", base, "--name", base.stem).code == 0
    asked = ("rounds", "start", "--base", f"site-a/{base.stem}", "--sites", "site-a,site-b")
    asked += ("--method", "fedavg", "--deadline", "1h", "--protection", "open", *OPTIONS)
    started = poolctl(*asked, "-q")
    assert started.code == 0, started.err
    return started.out.strip()


def contribute(poolctl: Run, key: str, data: Path, person: str):  # type: ignore[no-untyped-def]
    asked = ("rounds", "contribute", key, "--data", data, "--persons", person)
    return poolctl(*asked, "--least-others", "1", "--json")


def test_a_labs_own_network_is_trained_where_a_site_names_it(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    poolctl, data = site.be("site-a"), drawn(tmp_path / "data", OWN, 2)
    trained = tmp_path / "trained.safetensors"
    asked = ("train", "network", "gaze", data, "-o", trained, f"--set=architecture={OWN}")
    assert poolctl(*asked, "--set=epochs=1", "--set=device=cpu").code == 0
    key = start(poolctl, OWN, tmp_path / "own.safetensors")

    monkeypatch.setenv("POOL_NETWORKS", "")  # other commands, and the other site
    assert "which this site does not name" in poolctl("evaluate", trained, data).err
    contribute(site.be("site-b"), key, data, "02").fails(2, "its code was not imported")
    rules = Path(tmp_path / "home" / "config.toml")
    rules.parent.mkdir(exist_ok=True)
    before = rules.read_text() if rules.exists() else ""
    rules.write_text(f'{before}\n[rounds]\nnetworks = ["{OWN}"]\n')
    for name, person in (("site-a", "01"), ("site-b", "02")):
        sent = contribute(site.be(name), key, data, person)
        assert sent.code == 0, sent.err
    assert site.be("site-a")("rounds", "finish", key).code == 0
    assert "is off by" in poolctl("evaluate", trained, data).out


def test_a_pool_that_names_a_class_gets_nothing_imported(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    poolctl, data = site.be("site-a"), drawn(tmp_path / "data", OWN, 2)
    base, hostile = tmp_path / "own.safetensors", tmp_path / "hostile.safetensors"
    assert poolctl("federated", "init", "--architecture", OWN, "-o", base).code == 0
    network = read_model(base)
    assert isinstance(network, StateDict)
    texts = {**network.metadata, "architecture": TRAP}
    write_model(
        StateDict(network.tensors, network.infos, texts), hostile, format_name="safetensors"
    )
    key = start_from(poolctl, hostile)
    asking = ("rounds", "contribute", key, "--data", data, "--persons", "01")
    asking += ("--least-others", "1", "--accept", file_digest(hostile), "--yes")
    for asked in (
        asking,
        (*asking, "--dry-run"),
        ("evaluate", "site-a/hostile", data),
        ("federated", "simulate", data, "--base", hostile, "--method", "fedavg", "--rounds", "1",
         "-o", tmp_path / "run"),
    ):  # fmt: skip
        poolctl(*asked).fails(2, "which this site does not name; its code was not imported")
    assert "tests.site_agent.networks.trap" not in sys.modules
