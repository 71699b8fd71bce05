"""The page in a real browser: by keyboard."""

import csv
from collections.abc import Iterator
from pathlib import Path

import pytest

from site_agent.eyeblink.review.actions import ReviewEvent
from site_agent.eyeblink.review.review_session import open_review
from tests.site_agent.eyeblink.review.browser import Browser, missing_browser, running_browser
from tests.site_agent.eyeblink.review.conftest import running_review

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(bool(missing_browser()), reason=missing_browser() or "-"),
]

READY = "document.body.dataset.ready === 'true'"
STATUS = "document.getElementById('status').textContent"
SELECTED = "document.querySelector('#events [aria-selected=true] .number').textContent"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with running_browser(tmp_path_factory.mktemp("profile")) as running:
        yield running


def test_a_review_by_keyboard(browser: Browser, trace_session: Path) -> None:
    with open_review(trace_session, reviewer="Ada") as review, running_review(review) as url:

        def event(number: int) -> ReviewEvent:
            return next(
                candidate for candidate in review.state.events if candidate.blink_id == number
            )

        browser.open(url)
        browser.wait_for(READY)
        first = int(browser.run(f"return {SELECTED}")[1:])
        browser.press("a")
        browser.wait_for(f"{STATUS}.includes('#{first} accepted')")
        assert event(first).status == "accepted"
        second = int(browser.run(f"return {SELECTED}")[1:])
        assert second != first, "the next uncertain one is shown"
        browser.press("d")
        browser.wait_for(f"{STATUS}.includes('#{second} deleted')")
        assert event(second).status == "deleted"
        browser.press("u")
        browser.wait_for(f"{STATUS} === 'Taken back'")
        assert event(second).status == "unreviewed"
        third = int(browser.run(f"return {SELECTED}")[1:])
        before = event(third)
        peak = review.result.frames.nearest(before.peak_s)
        browser.press("Left", "Left", "2")
        browser.wait_for(f"{STATUS}.includes('#{third} has its peak here')")
        assert review.result.frames.nearest(event(third).peak_s) == peak - 2
        browser.press("c")
        browser.wait_for(f"{STATUS}.includes('#{third} is a closure')")
        browser.press("3")
        browser.wait_for(f"{STATUS}.includes('#{third} ends here')")
        count = len(review.state.events)
        browser.press("m")
        browser.wait_for(f"{STATUS}.startsWith('Blink added')")
        assert len(review.state.events) == count + 1
        assert browser.problems() == []
    with (trace_session / "review" / "blinks_reviewed.csv").open(newline="") as file:
        statuses = [row["review_status"] for row in csv.DictReader(file)]
    assert {"accepted", "corrected", "added"} <= set(statuses)


@pytest.mark.parametrize("width_px", [320, 390, 768, 1440])
def test_the_page_does_not_scroll_sideways(
    browser: Browser, trace_session: Path, width_px: int
) -> None:
    with open_review(trace_session, reviewer="Ada") as review, running_review(review) as url:
        browser.set_width(width_px)
        browser.open(url)
        browser.wait_for(READY)
        assert browser.run("return document.documentElement.scrollWidth") <= width_px
        browser.set_width(1300)


@pytest.mark.parametrize(
    ("model", "right_eye"),
    [pytest.param("landmark_file", 36, marks=pytest.mark.slow), ("eyes_file", 0)],
)
def test_frames_are_shown_and_landmarks_corrected(  # noqa: PLR0917
    browser: Browser,
    video_session: Path,
    recording: Path,
    model: str,
    right_eye: int,
    request: pytest.FixtureRequest,
) -> None:
    landmarks = request.getfixturevalue(model)
    with (
        open_review(video_session, video=recording, landmarks=landmarks) as review,
        running_review(review) as url,
    ):
        browser.open(url)
        browser.wait_for(READY)
        painted = (
            "[...document.getElementById('picture').getContext('2d')"
            ".getImageData(200, 200, 40, 40).data].some((v, i) => i % 4 < 3 && v > 0)"
        )
        browser.wait_for(painted)
        browser.wait_for("document.getElementById('readout').textContent.includes('FEC')")
        frame = int(browser.run("return import('./static/store.js').then(m => m.store.frame)"))
        before = review.landmarks(frame)
        assert before is not None
        browser.press("l", "Tab", "Up", "Up", "Escape")
        browser.wait_for(f"{STATUS}.includes('Landmarks of frame {frame} kept')")
        kept = review.state.frames[frame]
        lid = right_eye + 1
        assert kept.moved == (lid,)
        assert kept.landmarks is not None
        assert kept.landmarks[lid][1] == pytest.approx(before.landmarks[lid, 1] - 1.0, abs=0.01)
        assert kept.landmarks[right_eye] == pytest.approx(before.landmarks[right_eye], abs=0.01)
        browser.press("Right", "Right", "t")
        browser.wait_for(f"{STATUS} === 'Frame {frame + 2} is used for training'")
        assert sorted(review.state.frames) == [frame, frame + 2]
        browser.press("t")
        browser.wait_for(f"{STATUS} === 'Frame {frame + 2} is not used for training'")
        assert browser.problems() == []
