"""Drawn faces, sites and videos: landmarks follow geometry, lids follow closure."""

import json
from dataclasses import astuple, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import av
import dlib
import numpy as np
import pytest
from PIL import Image

from site_agent.datasets.check import check_datasets
from site_agent.datasets.imglab_xml import read_imglab_xml
from site_agent.datasets.landmark_schemes import eyes_of, ibug_mean_face
from site_agent.datasets.records import dataset_digest, part_names, parts_array
from site_agent.datasets.synthetic.canvas import Camera, expose
from site_agent.datasets.synthetic.eyes import Blink, closure_curve, random_blinks
from site_agent.datasets.synthetic.head_model import Expression, Pose
from site_agent.datasets.synthetic.persons import Person, person
from site_agent.datasets.synthetic.portraits import (
    Background,
    Portrait,
    background,
    draw_portrait,
    eye_aspect_ratios,
    face_box,
)
from site_agent.datasets.synthetic.rendering import Light, paint_head
from site_agent.datasets.synthetic.settings import FaceDrawing, VideoDrawing
from site_agent.datasets.synthetic.sites import SITE_STYLES, write_face_dataset
from site_agent.datasets.synthetic.videos import Film, write_blink_video
from site_agent.errors import InvalidInputError
from tests.site_agent.eyeblink.drawn_traces import rows_of
from tests.site_agent.face_data import draw_faces


@dataclass(frozen=True, eq=False)
class RenderedFace:
    image: np.ndarray
    landmarks: np.ndarray
    box: tuple[int, int, int, int]


def render_face(
    who: Person,
    pose: Pose = Pose(),
    closure_left: float = 0.0,
    closure_right: float = 0.0,
    *,
    light: Light = Light(),
    camera: Camera = Camera(),
    rng: np.random.Generator | None = None,
    expression: Expression = Expression(),
    scenery: Background = "room",
    scale_px: float = 64.0,
) -> RenderedFace:
    """Draw one face in the middle of a picture."""
    rng = rng or np.random.default_rng(who.number)
    eyes = (closure_left, closure_right)
    portrait = Portrait(who, (160.0, 320 * 0.47), scale_px, pose, expression, *eyes)
    scene = background(rng, (320, 320), scenery)
    landmarks = draw_portrait(scene, portrait, light)
    return RenderedFace(expose(scene, camera, rng), landmarks, face_box(landmarks))


def numbers_of(seed: int) -> np.ndarray:
    """The looks of a person as a vector."""
    looks = [value for value in astuple(person(seed))[2:] if not isinstance(value, str)]
    return np.array([float(x) for value in looks for x in np.atleast_1d(value)])


def test_persons_are_different_and_repeatable() -> None:
    looks = np.array([numbers_of(seed) for seed in range(200)])
    spread = (looks - looks.mean(axis=0)) / looks.std(axis=0).clip(1e-9)
    distances = np.linalg.norm(spread[:, None] - spread[None], axis=2) + 99 * np.eye(200)
    assert distances.min() > 2.5
    assert person(7) == person(7)
    groups = [person(seed).age_group for seed in range(200)]
    assert {groups.count(group) > 20 for group in ("infant", "adult", "elder")} == {True}
    assert person(3, "infant").age_group == "infant"
    assert person(3, "infant").chin_y < 1.4 < person(3, "adult").chin_y


@pytest.mark.parametrize("seed", range(2))
def test_landmarks_have_the_order_of_ibug(seed: int) -> None:
    contours = np.split(np.arange(68), [17, 22, 27, 31, 36, 42, 48, 55, 60, 65])
    for numbers in (np.arange(68), *contours):
        drawn, mean = render_face(person(seed)).landmarks[numbers], ibug_mean_face()[numbers]
        drawn, mean = (points - points.mean(axis=0) for points in (drawn, mean))
        assert (drawn * mean).sum() > 0.9 * np.linalg.norm(drawn) * np.linalg.norm(mean), numbers


def test_lids_follow_closure_and_each_eye_its_own() -> None:
    for seed in range(6):
        someone = person(seed)
        steps = np.linspace(0, 1, 4)
        ratios = np.array(
            [eye_aspect_ratios(render_face(someone, Pose(), 0.0, c).landmarks) for c in steps]
        )
        right, left = ratios.T
        assert np.ptp(left) < 1e-9
        assert np.all(np.diff(right) < 0)
        assert 0.2 < right[0] < 0.42
        assert 0.03 < right[-1] < 0.12
        # Fraction of closure from the aspect ratio is the closure that was asked for.
        assert np.allclose((right[0] - right) / (right[0] - right[-1]), steps, atol=0.06)


def test_pose_moves_landmarks_as_a_turning_head() -> None:
    someone = person(1)

    def at(**angles: float) -> np.ndarray:
        return render_face(someone, Pose(**angles)).landmarks

    front = at()
    middle = (front[0] + front[16]) / 2
    for angle in (15.0, -15.0):
        turned = at(yaw_deg=angle)
        nose = turned[30, 0] - (turned[0, 0] + turned[16, 0]) / 2
        assert nose * angle > 0  # positive yaw: the nose goes to the right
        assert (at(pitch_deg=angle)[30, 1] - front[30, 1]) * angle < 0  # positive pitch: up
        rolled = at(roll_deg=angle)
        slope = np.degrees(np.arctan2(*(rolled[45] - rolled[36])[::-1]))
        level = np.degrees(np.arctan2(*(front[45] - front[36])[::-1]))
        assert slope - level == pytest.approx(angle, abs=0.01)
    assert abs(front[30, 0] - middle[0]) < 6


def test_pixels_agree_with_landmarks() -> None:
    """The darkest place above and below the middle of a closed eye is its line of lashes."""
    for seed in (1, 4, 9, 13):
        face = render_face(person(seed), Pose(8, -4, 6), 1.0, 1.0, light=Light(0, 20))
        grey = face.image.mean(axis=2)
        for first in (36, 42):
            x, y = face.landmarks[[first + 1, first + 2, first + 4, first + 5]].mean(axis=0)
            rows = np.arange(round(y) - 9, round(y) + 10)
            column = grey[rows, round(x) - 1 : round(x) + 2].mean(axis=1)
            assert abs(rows[column.argmin()] - y) <= 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"closure_left": 1.2}, "closure_left is 1.2"), ({"pose": Pose(yaw_deg=40)}, "yaw_deg is 40")],
)
def test_refuses_what_cannot_be_drawn(arguments: dict, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        render_face(person(0), **arguments)


def test_stock_detector_finds_most_and_boxes_agree() -> None:
    detector = dlib.get_frontal_face_detector()
    overlaps = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        face = render_face(
            person(seed),
            Pose(*(float(a) for a in rng.uniform(-20, 20, 3))),
            light=Light(float(rng.uniform(-60, 60)), float(rng.uniform(0, 55))),
            rng=rng,
            scenery=("plain", "room", "clutter")[seed % 3],
        )
        left, top, right, bottom = face.box
        truth = dlib.rectangle(left, top, right, bottom)
        best = 0.0
        for detected in detector(face.image, 0) or detector(face.image, 1):
            both = truth.intersect(detected).area()
            best = max(best, both / (truth.area() + detected.area() - both))
        overlaps.append(best)
    detected = np.array(overlaps) > 0.5
    assert detected.mean() > 0.85
    assert np.median(np.array(overlaps)[detected]) > 0.75


def test_glasses_lie_over_the_eyes_and_move_no_landmark(tmp_path: Path) -> None:
    bare, some, all_ = (
        read_imglab_xml(draw_faces(tmp_path / str(share), 12, 12, 3, glasses=share))
        for share in (0.0, 0.4, 1.0)
    )
    changed = {"some": 0, "all": 0}
    for images in zip(bare.images, some.images, all_.images, strict=True):
        boxes = [image.boxes[0] for image in images]
        assert boxes[0].parts == boxes[1].parts == boxes[2].parts
        without, now, worn = (np.asarray(Image.open(image.path), dtype=float) for image in images)
        changed["some"] += bool(np.abs(now - without).max() > 60)
        points = np.array([boxes[0].parts[key] for key in sorted(boxes[0].parts)])
        centre = np.mean(eyes_of(points), axis=(0, 1)).round().astype(int)
        reach = boxes[0].width // 3
        difference = np.abs(worn - without).max(axis=2)
        changed["all"] += bool(difference.max() > 60)
        rows = slice(max(centre[1] - reach, 0), centre[1] + reach)
        difference[rows, max(centre[0] - 2 * reach, 0) : centre[0] + 2 * reach] = 0
        assert np.median(difference) < 25, "the rest of the picture is as it was, but for noise"
    assert changed["all"] == 12
    assert 1 <= changed["some"] <= 10


def truth_of(faces: Path) -> Path:
    return faces.with_name(f"{faces.stem}_truth.csv")


def test_writes_a_sound_data_set_with_its_truth(tmp_path: Path) -> None:
    seen: list[float] = []
    settings = FaceDrawing(images=6, persons=3, first_person=20, seed=1)
    xml = write_face_dataset(tmp_path / "new", settings, lambda part, _: seen.append(part)).path
    assert seen == sorted(seen)
    assert seen[-1] == 1.0
    dataset = read_imglab_xml(xml)
    assert check_datasets([dataset]) == []
    assert part_names(dataset) == tuple(f"{i:02d}" for i in range(68))
    rows = rows_of(truth_of(xml))
    assert [row["person"] for row in rows] == ["20", "21", "22"] * 2
    for (image, box), row in zip(dataset.boxes(), rows, strict=True):
        assert image.path == xml.parent / row["file"]
        assert f"person-{int(row['person']):03d}_" in image.path.name
        assert (box.left, box.width) == (int(row["box_left"]), int(row["box_width"]))
        ratio = eye_aspect_ratios(parts_array(box, part_names(dataset)))
        assert ratio[0] == pytest.approx(float(row["ear_right"]), abs=0.12)  # whole pixels
        assert row["age_group"] == person(int(row["person"])).age_group


def test_same_seed_same_files_other_seed_others(tmp_path: Path) -> None:
    first = draw_faces(tmp_path / "a", 3, 3, 5)
    again = draw_faces(tmp_path / "b", 3, 3, 5)
    other = draw_faces(tmp_path / "c", 3, 3, 6)
    assert first.read_bytes() == again.read_bytes()
    assert rows_of(truth_of(first)) == rows_of(truth_of(again))
    digests = [dataset_digest(read_imglab_xml(xml)) for xml in (first, again, other)]
    assert digests[0] == digests[1] != digests[2]


@pytest.mark.parametrize("style", SITE_STYLES)
def test_sites_differ(tmp_path: Path, style: str) -> None:
    xml = draw_faces(tmp_path, 12, 12, style=style, name=style, size=(96, 96))
    rows = rows_of(truth_of(xml))
    ages = [row["age_group"] for row in rows]
    with Image.open(xml.parent / rows[0]["file"]) as picture:
        grey = (np.ptp(np.asarray(picture), axis=2) == 0).all()
    assert grey == (style == "air-puff")
    assert (ages.count("infant") >= 8) == (style == "infant-lab")
    assert (ages.count("elder") >= 5) == (style == "ward")


def test_an_unknown_style_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="style is 'moon', expected one of mixed, "):
        draw_faces(tmp_path, 1, style="moon")
    assert not list(tmp_path.iterdir())


def decoded(path: Path) -> tuple[np.ndarray, list[np.ndarray]]:
    with av.open(str(path)) as container:
        frames = list(container.decode(video=0))
    return np.array([frame.time for frame in frames]), [f.to_ndarray(format="gray") for f in frames]


def test_video_truth_and_pixels_agree(tmp_path: Path) -> None:
    blinks = [Blink(0.5, 0.6, 0.8), Blink(1.2, 1.3, 1.5, 0.6)]
    settings = VideoDrawing(seconds=2.0, size=(320, 240), seed=1)
    drawn = write_blink_video(tmp_path / "v.mp4", settings, subject=4, blinks=blinks)
    truth = drawn.files["truth"]
    content = json.loads(truth.read_text())
    assert truth.name == "v_truth.json"
    assert content["video"] == "v.mp4"
    assert content["settings"]["person"] == 4
    assert [blink["complete"] for blink in content["blinks"]] == [True, False]
    assert content["blinks"][1]["amplitude"] == 0.6
    rows = rows_of(truth.with_suffix(".csv"))
    times, images = decoded(tmp_path / "v.mp4")
    assert len(rows) == content["frames"] == len(images) == 60
    stated = np.array([float(row["timestamp_s"]) for row in rows])
    assert np.abs(times - stated).max() < 1e-5
    closure = np.array([float(row["closure"]) for row in rows])
    ear = np.array([float(row["ear"]) for row in rows])
    assert np.allclose(closure, closure_curve(blinks, stated), atol=1e-4)
    assert np.corrcoef(closure, ear)[0, 1] < -0.99
    moved = [np.abs(a.astype(int) - b).mean() for a, b in pairwise(images)]
    assert max(moved) < 12  # neither cuts nor garbage


def test_variable_frame_rate_and_lost_frames_are_real(tmp_path: Path) -> None:
    settings = VideoDrawing(
        seconds=3.0,
        frame_rate_hz=25.0,
        size=(192, 128),
        variable_frame_rate=True,
        lost_frames=0.2,
        seed=2,
    )
    truth = write_blink_video(tmp_path / "v.mp4", settings).files["truth"]
    times, _ = decoded(tmp_path / "v.mp4")
    stated = np.array([float(row["timestamp_s"]) for row in rows_of(truth.with_suffix(".csv"))])
    assert 45 <= len(times) < 75
    assert times[0] == 0.0
    assert np.abs(times - stated).max() < 1e-5
    assert np.diff(times).std() > 0.005


def test_same_seed_same_video(tmp_path: Path) -> None:
    settings = VideoDrawing(seconds=0.5, frame_rate_hz=20.0, size=(128, 96), seed=3)
    made = [write_blink_video(tmp_path / name / "v.mp4", settings) for name in "ab"]
    assert len({drawn.files["truth"].read_bytes() for drawn in made}) == 1
    first, second = (decoded(drawn.path)[1] for drawn in made)
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


def test_a_film_shows_each_moment_as_a_portrait_does() -> None:
    """Nothing kept between frames may be seen: neither old lids nor traces of the head."""
    camera, light = Camera(blur_px=0.6, noise=0.0), Light()
    someone, size = person(3), (160, 120)
    room = background(np.random.default_rng(1), size, "room")
    film = Film(room, camera, np.random.default_rng(2))
    kept = paint_head(someone, Expression(), 24.0)
    for closure, yaw_deg, x, gaze in (
        (0.0, 0.0, 80.0, (0.0, 0.0)),
        (1.0, 0.0, 80.0, (0.0, 0.0)),
        (0.5, 8.0, 60.0, (0.5, 0.0)),
        (0.0, 0.1, 90.0, (0.0, 0.0)),
        (0.0, 0.0, -200.0, (0.0, 0.0)),
    ):
        moment = Portrait(
            someone,
            (x, 55.0),
            24.0,
            Pose(yaw_deg),
            closure_left=closure,
            closure_right=closure,
            gaze=gaze,
        )
        picture, ears = film.take(moment, kept, light)
        alone = room.copy()
        landmarks = draw_portrait(alone, moment, light, with_body=False)
        expected = expose(alone, camera, np.random.default_rng(0))
        assert np.abs(picture.astype(int) - expected).max() <= 1, (closure, yaw_deg, x)
        assert ears == eye_aspect_ratios(landmarks)


def test_blinks_are_those_of_people() -> None:
    rng = np.random.default_rng(0)
    blinks = random_blinks(600, rng)
    assert 90 < len(blinks) < 220
    closing = np.array([blink.peak_s - blink.onset_s for blink in blinks])
    opening = np.array([blink.offset_s - blink.peak_s for blink in blinks])
    assert closing.min() >= 0.08
    assert closing.max() <= 0.12
    assert opening.min() >= 0.15
    assert opening.max() <= 0.25
    assert 0.05 < np.mean([not blink.complete for blink in blinks]) < 0.4
    starts = np.diff([blink.onset_s for blink in blinks])
    assert starts.min() < 0.8  # doubles
    assert all(a.offset_s < b.onset_s for a, b in pairwise(blinks))
    times = np.arange(0, 120, 0.001)
    closure = closure_curve(blinks, times)
    assert closure.min() == 0.0
    assert closure.max() <= 1.0
    assert np.abs(np.diff(closure)).max() < 0.03  # no jumps
    assert closure_curve(blinks, np.array([blinks[0].peak_s]))[0] == blinks[0].amplitude


@pytest.mark.parametrize(
    "chosen", [{"seconds": 0}, {"frame_rate_hz": 5000}, {"lost_frames": 0.9}, {"size": (321, 240)}]
)
def test_videos_that_cannot_be_drawn_are_refused(chosen: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError, match=next(iter(chosen))):
        VideoDrawing(**chosen)
