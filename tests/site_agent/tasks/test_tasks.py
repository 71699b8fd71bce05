"""Tasks without a command line: the work follows its preview, and remarks reach the caller."""

from pathlib import Path

import pytest

from aggregators.formats import file_digest, write_model
from site_agent.errors import InvalidInputError
from site_agent.pool.sidecars import ModelDescription
from site_agent.tasks import batches
from site_agent.tasks.batches import prepare_batch
from site_agent.tasks.caller import NotedCaller
from site_agent.tasks.uploading import prepare_upload
from tests.aggregators.small_models import make_detector
from tests.site_agent.live_pool import live_pool


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("POOL_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    for number in (1, 2):
        write_model(make_detector(number), tmp_path / f"{number}.svm")
    return ["1.svm", "2.svm"]


def test_an_upload_sends_its_preview(
    models: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller = NotedCaller()
    Path("1.svm.terms").write_text("DUO:0000042\n")
    with live_pool(tmp_path / "pool") as running:
        monkeypatch.setenv("POOL_ENDPOINT", running.url)
        monkeypatch.setenv("POOL_TOKEN", running.tokens["site-a"])
        with caller.pool() as pool:
            description = ModelDescription({"popluation": "infant"}, {}, [])
            prepared = prepare_upload(
                caller, pool, Path(models[0]), "face", description, fields={"draft": True}
            )
            assert list(pool.models.find()) == [], "nothing was sent"
            sent = prepared.send(caller, pool).version
    assert caller.notes == ["taken from 1.svm.terms: 1 terms"]
    assert prepared.doubtful_labels == {"popluation": "population"}
    assert sent.address.startswith(f"{prepared.address}@")
    assert (sent.digest, sent.state) == (file_digest(Path(models[0])), "draft")
    assert [term.code for term in sent.terms] == ["DUO:0000042"]


def test_a_batch_without_recordings_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="holds no videos, and no traces"):
        prepare_batch(NotedCaller(), tmp_path, tmp_path / "study")


@pytest.mark.parametrize("is_folder", [True, False])
def test_a_batch_without_landmarks_takes_the_starter(
    models: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_folder: bool
) -> None:
    monkeypatch.setattr(batches, "default_landmarks", lambda _caller: models[1])
    Path("list.csv").write_text("video\nvideos/session.mp4\n")
    Path("videos").mkdir()
    Path("videos", "session.mp4").touch()
    chosen = Path("videos" if is_folder else "list.csv"), tmp_path / "study"
    [session] = prepare_batch(NotedCaller(), *chosen).sessions
    assert Path(session.landmarks) == Path(models[1])
    [session] = prepare_batch(NotedCaller(), *chosen, landmarks=models[0]).sessions
    assert Path(session.landmarks) == Path(models[0])
