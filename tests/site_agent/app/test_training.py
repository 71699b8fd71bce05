"""Training and rounds in the app: checked faces, small models, a contribution after its preview."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from site_agent.datasets.records import FaceDataset
from site_agent.errors import InvalidInputError, StalePreviewError
from site_agent.jobs import modelling
from site_agent.jobs.folder import JobFolder
from site_agent.pool.sent import read_sent
from site_agent.training.ert import train_ert
from site_agent.training_record import TrainingResult
from tests.cli.conftest import run_here
from tests.site_agent.app.conftest import TINY, begin_round
from tests.site_agent.app.running_app import RunningApp, running_app
from tests.site_agent.app.test_models import do, log
from tests.site_agent.face_data import draw_faces
from tests.site_agent.live_pool import LivePool

__all__ = ["log"]


@pytest.fixture(scope="module")
def faces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return draw_faces(tmp_path_factory.mktemp("faces"), 24, 12, 1)


@pytest.fixture
def app(tmp_path: Path, pool: LivePool, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningApp]:
    monkeypatch.setenv("POOL_HOME", str(tmp_path / "h"))
    monkeypatch.setattr(JobFolder, "start_runner", lambda _: None)
    with running_app(tmp_path / "h", tmp_path / "r") as app_:
        app_.post("/settings/join", endpoint=pool.url, secret=pool.tokens["site-a"])
        yield app_


def test_faces_are_checked_tried_and_trained_on(
    app: RunningApp, faces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(modelling, "settings_for_blinks", lambda _: TINY)
    monkeypatch.setattr(modelling, "_SHARES", (0.5, 1.0))
    assert app.post("/train/check", faces=str(tmp_path / "none.xml")).status_code == 422
    assert app.post("/train/check", faces=f'"{faces}"').status_code == 303
    checked = do(app, "check")
    assert (checked["faces"], checked["images"]) == (24, 24)
    assert "24 faces in 24 pictures" in app.get("/train").text
    assert app.post("/train/start", name="../eyes").status_code == 422
    begun = app.post("/train/start", name="eyes")
    assert begun.status_code == 303
    place = begun.headers["location"].removeprefix(f"/{app.folder.prefix()}")
    assert "waits for its turn" in app.get(place).text
    trained = do(app, "train")
    page = app.get(place).text
    assert "Trained on 24 faces" in page
    assert page.count("<progress max=") == 2, "one for each small model"
    assert f"/models/{trained['digest'][:16]}" in page
    assert "trained here" in app.get("/models").text
    assert "is there already" in app.post("/train/start", name="eyes").text


def test_quick_trials_are_not_done_twice(
    app: RunningApp, faces: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(modelling, "settings_for_blinks", lambda _: TINY)
    monkeypatch.setattr(modelling, "_SHARES", (0.5, 1.0))
    app.post("/train/check", faces=str(faces))
    job = app.post("/train/start", name="again").headers["location"].rpartition("/")[2]
    trained: list[str] = []

    def train(data: FaceDataset, path: Path, *others: Any, **options: Any) -> TrainingResult:
        trained.append(path.name)
        if len(trained) == 2:
            raise InvalidInputError("cancelled")
        return train_ert(data, path, *others, **options)

    monkeypatch.setattr(modelling, "train_ert", train)
    with pytest.raises(InvalidInputError):
        do(app, "train")
    assert app.get(f"/train/{job}").text.count("Error with ") == 1, "is there before the end"
    app.lab.jobs.finish(job, "cancelled")
    assert app.post(f"/jobs/{job}/retry").status_code == 303
    do(app, "train")
    assert trained == ["0.dat", "1.dat", "1.dat", "again.dat"]
    page = app.get(f"/train/{job}").text
    assert page.count("Error with ") == 2
    # A test in the app says what the command says.
    number = page.partition(f"{app.folder.prefix()}/models/")[2].partition('"')[0]
    app.post("/models/ask/test", model=number, faces=str(faces))
    [scores] = do(app, "evaluate")["scores"].values()
    model = app.lab.studies.first().place.with_name("models") / "again.dat"
    [told] = run_here("evaluate", model, faces, "--json").data["items"]
    assert told["mean_error"] == scores["mean_error"]


def test_a_contribution_leaves_after_its_preview(
    app: RunningApp, faces: Path, pool: LivePool, log: list[bytes], tmp_path: Path
) -> None:
    number = begin_round(pool, faces, tmp_path)
    app.lab.watch.ask_pool()
    assert '<span class="count">1<' in app.get("/jobs").text
    page = app.get("/rounds").text
    assert "1 round waiting for your lab" in page
    log.clear()
    here = f"/rounds/{number}"
    assert "site-b started this round, and you do not trust it yet" in app.get(here).text
    trusted = app.post("/settings/trust", site="site-b", back=here)
    assert trusted.headers["location"].endswith(here)
    assert app.post(f"{here}/send", preview="").status_code == 409, "nothing was computed"
    assert app.post(f"{here}/compute", faces=str(faces)).status_code == 303
    assert "<button>Compute" not in app.get(here).text
    assert "is waiting or running" in app.post(f"{here}/compute", faces=str(faces)).text
    computed = do(app, "contribute")
    assert log == [], "computed, and nothing sent"
    # The command computes the same where nothing is kept of the first computation.
    home = shutil.copytree(
        tmp_path / "h", tmp_path / "h2", ignore=lambda folder, names: {"jobs", "rounds", "cache"}
    )
    told = run_here(
        "rounds", "contribute", number, "--data", faces, "--least-others", 1, "--dry-run", "--json",
        POOL_HOME=str(home),
    ).data  # fmt: skip
    assert told["digest"] == computed["digest"]
    log.clear()
    page = app.get(here).text
    assert "Nothing has been sent yet" in page
    assert computed["digest"] in page
    assert app.post(f"{here}/send", preview="another").status_code == 409
    view = [view for view in app.lab.jobs.views() if view.job.kind == "contribute"][-1]
    with pytest.raises(StalePreviewError):
        modelling.contribute({**view.job.request, "preview": "another"}, lambda *_: None)
    assert log == []
    assert app.post(f"{here}/send", preview=computed["preview"]).status_code == 303
    page = app.get(here).text
    assert "Your contribution is being sent" in page
    assert "Nothing has been sent yet" not in page
    assert f'{here}/send"' not in page
    sent = do(app, "contribute")
    assert sent["is_sent"]
    announced, content = [body for body in log if not body.startswith(b'{"parts":')]
    assert announced.decode() == computed["announcement"]
    assert len(content) == computed["size_bytes"]
    [item, _] = [item for item in read_sent() if item.is_item]
    assert (item.title, item.by) == ("Contribution to a round", "app")
    page = app.get(here).text
    assert "Your lab has contributed" in page
    assert "waiting for your lab" not in page
    assert '">taken back' not in app.get("/sent").text
    assert app.post(f"{here}/back").status_code == 303
    page = app.get(here).text
    assert "Your lab has contributed" not in page
    assert "Compute it again" in page.partition('id="act-part" data-part')[2]
    assert "Your contribution was taken back" in page
    assert '">taken back' in app.get("/sent").text
    app.post(f"{here}/compute", faces=str(faces))
    computed = do(app, "contribute")
    page = app.get(here).text
    assert "The earlier contribution is no longer with the pool" in page
    app.post(f"{here}/send", preview=computed["preview"])
    do(app, "contribute")
    assert '">taken back' not in app.get("/sent").text, "it was sent again"
