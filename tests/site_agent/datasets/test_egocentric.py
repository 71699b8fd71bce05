"""Egocentric clips: drawn data in three layouts, and files written by hand."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from site_agent.datasets.egocentric import (
    EGTEA_HEADER_LINES,
    FIXATION,
    MOVING,
    SPLITS,
    UNTRACKED,
    ClipShape,
    Float64,
    arrange,
    check_clips,
    decode_video,
    open_egocentric,
    read_begaze,
)
from site_agent.datasets.synthetic import egocentric_clips
from site_agent.datasets.synthetic.egocentric_clips import (
    HEIGHT_PX,
    WIDTH_PX,
    ClipSettings,
    draw_clip,
    preferences,
    write_clips,
)
from site_agent.errors import AnnotationFileError, InvalidInputError
from tests.site_agent.datasets.other_layouts import write_ego4d, write_layout

SETTINGS = ClipSettings(persons=2, videos=5, seconds=1.5)


@pytest.mark.parametrize("layout", ["generic", "egtea", "ego4d"])
def test_a_drawn_layout_is_read_back_to_one_pixel_and_frame_exact(
    layout: str, tmp_path: Path
) -> None:
    write_layout(tmp_path / "clips", SETTINGS, layout)
    dataset = open_egocentric(tmp_path / "clips")
    assert dataset.layout == layout
    assert dataset.persons == ("P01", "P02")
    samples = dataset.read(shape=ClipShape(8, 120, 1))
    assert [int((samples.split == split).sum()) for split in SPLITS] == [24, 8, 8]
    for person in range(2):
        for number in range(SETTINGS.videos):
            drawn = draw_clip(SETTINGS, person, number)
            of_person = samples[np.char.startswith(samples.person, drawn.person)]
            read = of_person[4 * number : 4 * number + 4]  # 36 frames: 4 clips of 8, and a rest
            count = 8 * len(read)
            assert set(read.split) == {drawn.split}
            tracked = drawn.kind[:count] != UNTRACKED
            assert np.array_equal(read.kind.reshape(-1) != UNTRACKED, tracked)
            off = np.abs(read.gaze.reshape(-1, 2) - drawn.gaze[:count]) * (WIDTH_PX, HEIGHT_PX)
            assert off[tracked].max() < 1
            # The frames are those, not their neighbours.
            stem = _stem(layout, number, drawn.person)
            path = next(clip.path for clip in dataset.clips if clip.path.stem == stem)
            pictures = list(decode_video(path))
            assert len(pictures) == len(drawn.frames)
            for index in (1, 17, 34):
                errors = [
                    np.abs(pictures[index].astype(float) - drawn.frames[index + step]).mean()
                    for step in (-1, 0, 1)
                ]
                assert errors[1] < 5
                assert errors[1] <= min(errors)


def _stem(layout: str, number: int, person: str) -> str:
    session = f"{person}-R{number + 1:02}-Drawn-F000024-F000060"
    return session if layout == "egtea" else f"{person}-{number:02}"


@pytest.mark.parametrize(("heterogeneity", "least_own", "most_common"), [(0, 0, 1), (1, 0.7, 0.42)])
def test_an_ideal_observer_gains_by_preferences_only_where_persons_differ(
    heterogeneity: float, least_own: float, most_common: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = ClipSettings(persons=5, heterogeneity=heterogeneity)
    thetas = [preferences(settings, person) for person in range(settings.persons)]
    odds_of, hits = egocentric_clips.odds_of, []

    def watch(features: Float64, theta: Float64, *place: Float64) -> Float64:
        odds = odds_of(features, theta, *place)
        common = np.mean([odds_of(features, other, *place) for other in thetas], axis=0)
        hits.append((odds.max(), odds[common.argmax()]))
        return odds

    monkeypatch.setattr(egocentric_clips, "odds_of", watch)
    for person in range(settings.persons):
        for number in range(10):
            draw_clip(settings, person, number, every=1000)
    personal, common = np.mean(hits, axis=0)
    assert personal >= least_own
    assert common <= most_common
    assert (personal == common) == (heterogeneity == 0)


@pytest.mark.parametrize(
    ("table", "change", "problem"),
    [
        ("gaze.csv", lambda text: text.replace("clip,frame", "clip,number", 1), "lacks frame"),
        ("gaze.csv", lambda text: text.replace(",fixation", ",looking", 1), "kind 'looking'"),
        ("gaze.csv", lambda text: text[: len(text) // 2], "."),
        ("gaze.csv", lambda text: text.replace("0.", "7.", 1), "expected 0 to 1"),
        ("gaze.csv", lambda text: _without(text, "P01-00,7,"), "has 35 frames, expected all"),
        ("gaze.csv", lambda text: _without(text, "P01-00,35,"), "has 36 frames, and its gaze"),
        ("clips.csv", lambda text: text.replace("videos/", "../", 1), "outside the folder"),
        ("clips.csv", lambda text: text.replace(",train", ",other", 1), "split 'other'"),
        ("clips.csv", lambda text: text.replace(",P01,", ",,", 1), "P01-00 has no person"),
        ("clips.csv", lambda text: text + text.splitlines()[1], "clip P01-00 comes twice"),
        ("truth.csv", lambda text: text.replace("0.", "-0.", 1), "expected 0 to 1"),
    ],
)
def test_damaged_tables_are_refused_with_their_line(
    table: str, change: Callable[[str], str], problem: str, tmp_path: Path
) -> None:
    folder = tmp_path / "clips"
    write_clips(folder, ClipSettings(persons=1, videos=1, seconds=1.5))
    path = folder / table
    path.write_text(change(path.read_text()))
    with pytest.raises(AnnotationFileError, match=problem) as caught:
        open_egocentric(folder).read()
    assert str(folder) in str(caught.value)


def test_the_truth_is_that_of_its_frame_in_any_order(tmp_path: Path) -> None:
    write_clips(tmp_path, ClipSettings(persons=1, videos=1, seconds=1.5))
    [whole] = open_egocentric(tmp_path).clips
    table = tmp_path / "truth.csv"
    header, *lines = table.read_text().splitlines()
    table.write_text("\n".join([header, *lines[:1:-1]]))
    [known] = open_egocentric(tmp_path).clips
    assert known.truth is not None
    assert whole.truth is not None
    assert np.array_equal(known.truth[2:], whole.truth[2:])
    assert np.isnan(known.truth[:2]).all()


def test_videos_that_come_twice_are_found(tmp_path: Path) -> None:
    write_clips(tmp_path / "clips", SETTINGS)
    whole = open_egocentric(tmp_path / "clips")
    digest = whole.digest
    assert check_clips(whole) == []
    shutil.copytree(tmp_path / "clips", tmp_path / "test")
    shared = check_clips(whole, open_egocentric(tmp_path / "test"))
    assert {(finding.severity, finding.code) for finding in shared} == {("error", "shared-video")}
    first, second, *_, last = (clip for clip in whole.clips if clip.person == "P01")
    for copied, severity in ((second, "warning"), (last, "error")):
        kept = copied.path.read_bytes()
        shutil.copy(first.path, copied.path)
        [finding] = check_clips(whole)
        assert finding.severity == severity
        assert f"is the same video as {first.name} (P01, train)" in finding.text
        assert whole.digest != digest, "of other pictures under the same names"
        copied.path.write_bytes(kept)


def _without(text: str, start: str) -> str:
    return "".join(line for line in text.splitlines(keepends=True) if not line.startswith(start))


def begaze(path: Path, rows: list[str], *, first_version: bool) -> Path:
    header = ["## header"] * EGTEA_HEADER_LINES
    if first_version:
        header[9] = "## Number of Samples:\t4"
    path.write_text("\n".join([*header, *rows]) + "\n")
    return path


def test_both_versions_of_begaze_are_read(tmp_path: Path) -> None:
    first = begaze(
        tmp_path / "one.txt",
        ["1\tSMP\t1\t640\t480\t2\tFixation", "2\tSMP\t1\t660\t480\t2\tFixation",
         "3\tSMP\t1\t10\t10\t2\tSaccade", "4\tSMP\t1\t320\t240\t3\tSaccade",
         "5\tSMP\t1\t0\t0\t4\tBlink"],
        first_version=True,
    )  # fmt: skip
    gaze, kind = read_begaze(first)
    assert kind.tolist() == [UNTRACKED, UNTRACKED, FIXATION, MOVING, UNTRACKED]
    assert gaze[2] == pytest.approx([650 / 1280, 0.5])
    assert gaze[3] == pytest.approx([0.25, 0.25])
    filler = "\t".join(["-"] * 17)
    second = begaze(
        tmp_path / "two.txt",
        [f"1\tSMP\t1\ta\tb\t640\t480\t{filler}\t00:00:01:02\tFixation"],
        first_version=False,
    )
    gaze, kind = read_begaze(second)
    assert len(kind) == 24 + 2 + 1
    assert kind[-1] == FIXATION
    assert gaze[-1] == pytest.approx([0.5, 0.5])


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ([], "ends in its header"),
        (["1\tSMP\t1\t640"], "found 4 values, expected 7"),
        (["1\tSMP\t1\tx\t480\t2\tFixation"], "expected pixels"),
        (["1\tSMP\t1\t640\t480\t-2\tFixation"], "frame is '-2'"),
    ],
)
def test_damaged_begaze_files_are_refused(rows: list[str], problem: str, tmp_path: Path) -> None:
    path = begaze(tmp_path / "gaze.txt", rows, first_version=True)
    if not rows:
        path.write_text("\n".join(["## header"] * EGTEA_HEADER_LINES))
    with pytest.raises(AnnotationFileError, match=problem):
        read_begaze(path)


def test_gaze_outside_the_picture_is_untracked(tmp_path: Path) -> None:
    write_ego4d(tmp_path, ClipSettings(persons=1, videos=1, seconds=1.5))
    table = next((tmp_path / "gaze").glob("*.csv"))
    lines = table.read_text().splitlines()
    lines[1] = "0.0,0,0.95,1.7,0.5"
    table.write_text("\n".join(lines) + "\n")
    assert open_egocentric(tmp_path).clips[0].kind[0] == UNTRACKED


@pytest.mark.parametrize("layout", ["egtea", "ego4d"])
def test_official_lists_give_the_splits_and_sessions_make_sites(
    layout: str, tmp_path: Path
) -> None:
    """EGTEA's lists name clips, GLC's the files of clips or of pieces of 5 s."""
    write_layout(tmp_path / "clips", ClipSettings(persons=2, videos=6, seconds=0.5), layout)
    dataset = open_egocentric(tmp_path / "clips")
    files = {
        "egtea": [f"{clip.path.parent.name}/{clip.name}.mp4" for clip in dataset.clips],
        "ego4d": [f"{clip.name}/{clip.name}_t0_t5.mp4" for clip in dataset.clips],
    }[layout]
    train, test = tmp_path / "train_official.csv", tmp_path / "test_split1.txt"
    train.write_text("\n".join(files[:5] + files[6:10]) + "\n", encoding="utf-8")
    names = files[11:] if layout == "ego4d" else [dataset.clips[11].name]
    test.write_text("\n".join(f'"{name} 1 1 1"' for name in names) + "\n", encoding="utf-8")
    arranged = arrange(dataset, [train, test])
    splits = {(clip.person, clip.split) for clip in arranged.clips}
    assert splits == {("P01", "train"), ("P01", "validation"), ("P02", "train"), ("P02", "test")}
    assert len(arranged.clips) == 10, "those that no list names are left out"
    assert arranged.digest != dataset.digest
    dealt = arrange(dataset, [train, test], 5)
    assert dealt.persons == tuple(f"site-{number}" for number in range(1, 6))
    by_site = [clip.person for clip in dealt.clips if clip.split == "test"]
    assert by_site == ["site-1"]
    assert {person for clip in arrange(dataset, site_count=2).clips if clip.split == "test"
            for person in [clip.person]} == {"site-1", "site-2"}  # fmt: skip
    with pytest.raises(InvalidInputError, match="expected at least 13, one for each site"):
        arrange(dataset, site_count=13)
    with pytest.raises(InvalidInputError, match="for train and test"):
        arrange(dataset, [train])
    with pytest.raises(InvalidInputError, match="with 'train' or with 'test'"):
        arrange(dataset, [tmp_path / "split1.txt"])


def test_a_folder_without_a_layout_and_unknown_persons_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="is no data set of egocentric clips"):
        open_egocentric(tmp_path)
    write_clips(tmp_path / "clips", ClipSettings(persons=1, videos=1, seconds=1.5))
    with pytest.raises(InvalidInputError, match="has no person P09; it has P01"):
        open_egocentric(tmp_path / "clips").read(["P09"])
    with pytest.raises(InvalidInputError, match="holds other files"):
        write_clips(tmp_path / "clips", SETTINGS)
