"""Chosen frames become a training set that can be read and checked."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from site_agent.datasets.check import check_datasets
from site_agent.datasets.imglab_xml import read_imglab_xml
from site_agent.datasets.landmark_schemes import IBUG_PARTS, expand_parts
from site_agent.datasets.records import part_names
from site_agent.errors import InvalidInputError
from site_agent.eyeblink.review.actions import Accept, UseFrame
from site_agent.eyeblink.review.review_session import ReviewSession, open_review
from site_agent.eyeblink.review.training_export import export_training_set
from tests.cli.conftest import run_here


def choose(review: ReviewSession, frame: int, *, shift_px: float = 0.0) -> np.ndarray:
    """Choose a frame as the page does, with the upper lids moved."""
    placed = review.landmarks(frame)
    assert placed is not None
    points = placed.landmarks.copy()
    lids = (37, 38, 43, 44) if len(points) == IBUG_PARTS else (1, 2, 7, 8)
    points[list(lids), 1] -= shift_px
    landmarks = tuple((float(x), float(y)) for x, y in points)
    review.act(UseFrame(frame=frame, landmarks=landmarks, moved=lids if shift_px else ()))
    return points


@pytest.mark.parametrize(("model", "parts"), [("landmark_file", IBUG_PARTS), ("eyes_file", 12)])
def test_the_set_holds_the_chosen_frames(  # noqa: PLR0917
    model: str,
    parts: int,
    video_session: Path,
    recording: Path,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    landmarks = request.getfixturevalue(model)
    with open_review(video_session, video=recording, landmarks=landmarks) as review:
        points = {frame: choose(review, frame, shift_px=frame / 10) for frame in (0, 50, 20)}
        written = export_training_set(review, tmp_path / "new" / "faces.xml")
        pictures = {frame: review.video.picture(frame) for frame in points}  # type: ignore[union-attr]
        boxes = {frame: review.result.frames.box(frame) for frame in points}
    assert (written.images, written.corrected_images) == (3, 2)
    dataset = read_imglab_xml(written.path)
    assert check_datasets([dataset]) == []
    assert {len(box.parts) for _, box in dataset.boxes()} == {parts}
    names = part_names(dataset)
    assert expand_parts(["eyes"], names)[0] == tuple(str(number) for number in range(36, 48))
    for image, frame in zip(dataset.images, (0, 20, 50), strict=True):
        [box] = image.boxes
        marked = np.array(list(box.parts.values()))
        # Whole pixels of the enlarged picture, back in pixels of the video.
        back = (marked + 0.5) / written.scale - 0.5
        assert np.abs(back - points[frame]).max() <= 0.51 / written.scale
        expected = boxes[frame]
        assert expected is not None
        assert box.width == pytest.approx(expected.width * written.scale, abs=1)
        assert (box.left + 0.5) / written.scale - 0.5 == pytest.approx(expected.left, abs=1)
        shown = Image.open(image.path)
        assert shown.size == (320 * written.scale, 240 * written.scale)
        small = np.asarray(shown.resize((320, 240), Image.Resampling.BOX), dtype=float)
        assert np.abs(small - pictures[frame]).mean() < 2.0
    again = tmp_path / "again.xml"
    arguments = ("--video", recording, "--landmarks", landmarks, "--export", again, "-q")
    told = run_here("blink", "review", video_session, *arguments)
    assert (told.code, told.out) == (0, f"{again}\n"), told.err
    assert [image.boxes for image in read_imglab_xml(again).images] == [
        image.boxes for image in dataset.images
    ]


def test_a_model_learns_from_reviews_and_says_its_gain_on_sessions_left_out(
    video_session: Path, recording: Path, landmark_file: Path, tmp_path: Path
) -> None:
    sessions = [video_session, shutil.copytree(video_session, tmp_path / "second" / "out")]
    for place in sessions:
        shutil.copy(recording, place.parent / recording.name)
    arguments = ("blink", "learn", *sessions, "--rounds", "1", "--json", "-q")
    arguments += ("--landmarks", landmark_file, "-o", tmp_path / "new.dat")
    with open_review(sessions[0], landmarks=landmark_file) as review:
        review.act(Accept(blink_id=1))
        for frame in range(0, 300, 30):
            choose(review, frame, shift_px=3.0)
    assert "found 1 session" in run_here(*arguments).out
    with open_review(sessions[1], landmarks=landmark_file) as review:
        for frame in range(15, 300, 30):
            choose(review, frame, shift_px=3.0)
    told = run_here(*arguments)
    assert told.code == 0, told.err
    learned = json.loads(told.out)["data"]
    assert [gain["frames"] for gain in learned["gains"]] == [10, 10]
    for gain in learned["gains"]:
        before, after = gain["errors"]
        assert after < 0.9 * before, "lids that both reviewers moved are placed where they had them"
    assert learned["gains"][0]["f1"][0] > 0.5
    assert learned["gains"][1]["f1"] == [None, None], "no blink of it was reviewed"
    assert len(read_imglab_xml(Path(learned["faces"])).images) == 20
    assert (tmp_path / "new.dat").is_file()


def test_frames_chosen_without_a_model_get_their_landmarks_at_export(
    video_session: Path, recording: Path, landmark_file: Path, tmp_path: Path
) -> None:
    with open_review(video_session, video=recording) as review:
        review.act(UseFrame(frame=7))
        with pytest.raises(InvalidInputError, match="frame 7: needs --landmarks"):
            export_training_set(review, tmp_path / "a.xml")
        assert list(tmp_path.glob("*.xml")) == []
    with open_review(video_session, video=recording, landmarks=landmark_file) as review:
        written = export_training_set(review, tmp_path / "a.xml")
    assert written.images == 1


def test_an_impossible_export_is_refused(
    video_session: Path, recording: Path, landmark_file: Path, tmp_path: Path
) -> None:
    with open_review(video_session, video=recording, landmarks=landmark_file) as review:
        with pytest.raises(InvalidInputError, match="no frame is chosen"):
            export_training_set(review, tmp_path / "a.xml")
        choose(review, 1)
        export_training_set(review, tmp_path / "a.xml")
        with pytest.raises(InvalidInputError, match="already exists"):
            export_training_set(review, tmp_path / "a.xml")
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_frames_with_landmarks_of_two_models_are_not_exported_together(
    video_session: Path, recording: Path, landmark_file: Path, eyes_file: Path, tmp_path: Path
) -> None:
    with open_review(video_session, video=recording, landmarks=landmark_file) as review:
        choose(review, 1)
    with open_review(video_session, video=recording, landmarks=eyes_file) as review:
        choose(review, 2)
        with pytest.raises(InvalidInputError, match=r"frame 2: found 12 .* the 68 of frame 1"):
            export_training_set(review, tmp_path / "a.xml")


def test_landmarks_of_another_number_are_refused() -> None:
    points = ((0.0, 0.0),) * 12
    with pytest.raises(ValueError, match="found 11 landmarks, expected 68 or 12"):
        UseFrame(frame=0, landmarks=points[:11])
    with pytest.raises(ValueError, match="found moved landmark 12, expected 0 to 11"):
        UseFrame(frame=0, landmarks=points, moved=(12,))
