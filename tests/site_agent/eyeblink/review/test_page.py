"""The page in a real browser: by keyboard."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from site_agent.eyeblink.review.actions import ReviewEvent
from site_agent.eyeblink.review.review_session import ReviewSession, open_review
from tests.site_agent.app.test_app_in_chromium import chromium, pytestmark
from tests.site_agent.eyeblink.drawn_traces import rows_of
from tests.site_agent.eyeblink.review.conftest import running_review
from tests.waiting import wait_until

__all__ = ["chromium", "pytestmark"]
STATUS = "document.getElementById('status').textContent"
SELECTED = "document.querySelector('#events [aria-selected=true] .number').textContent"


@pytest.fixture
def page(chromium: Any) -> Iterator[Any]:
    """A window; errors in its console fail the test."""
    problems: list[str] = []
    page = chromium.new_page(viewport={"width": 1300, "height": 1000})
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)  # noqa: E501 # fmt: skip
    page.on("pageerror", lambda error: problems.append(str(error)))
    yield page
    page.close()
    assert problems == []


@contextmanager
def running_page(page: Any, review: ReviewSession) -> Iterator[str]:
    """Run a review, and leave its page before its server ends."""
    with running_review(review) as url:
        yield url
        page.goto("about:blank")


def open_page(page: Any, url: str) -> None:
    page.goto(url)
    page.wait_for_selector("body[data-ready=true]")


def wait_for(page: Any, condition: str) -> None:
    # The page's policy refuses the function that Playwright's own wait would compile.
    wait_until(lambda: page.evaluate(condition))


def press(page: Any, *names: str) -> None:
    for name in names:
        page.keyboard.press(name)


def test_a_review_by_keyboard(page: Any, trace_session: Path) -> None:
    with open_review(trace_session, reviewer="Ada") as review, running_page(page, review) as url:

        def event(number: int) -> ReviewEvent:
            return next(
                candidate for candidate in review.state.events if candidate.blink_id == number
            )

        open_page(page, url)
        first = int(page.evaluate(f"{SELECTED}")[1:])
        press(page, "a")
        wait_for(page, f"{STATUS}.includes('#{first} accepted')")
        assert event(first).status == "accepted"
        second = int(page.evaluate(f"{SELECTED}")[1:])
        assert second != first, "the next uncertain one is shown"
        press(page, "d")
        wait_for(page, f"{STATUS}.includes('#{second} deleted')")
        assert event(second).status == "deleted"
        press(page, "u")
        wait_for(page, f"{STATUS} === 'Taken back'")
        assert event(second).status == "unreviewed"
        third = int(page.evaluate(f"{SELECTED}")[1:])
        before = event(third)
        peak = review.result.frames.nearest(before.peak_s)
        press(page, "ArrowLeft", "ArrowLeft", "2")
        wait_for(page, f"{STATUS}.includes('#{third} has its peak here')")
        assert review.result.frames.nearest(event(third).peak_s) == peak - 2
        press(page, "c")
        wait_for(page, f"{STATUS}.includes('#{third} is a closure')")
        press(page, "3")
        wait_for(page, f"{STATUS}.includes('#{third} ends here')")
        count = len(review.state.events)
        press(page, "m")
        wait_for(page, f"{STATUS}.startsWith('Blink added')")
        assert len(review.state.events) == count + 1
    rows = rows_of(trace_session / "review" / "blinks_reviewed.csv")
    assert {"accepted", "corrected", "added"} <= {row["review_status"] for row in rows}


@pytest.mark.parametrize("width_px", [320, 1440])
def test_the_page_does_not_scroll_sideways(page: Any, trace_session: Path, width_px: int) -> None:
    with open_review(trace_session, reviewer="Ada") as review, running_page(page, review) as url:
        page.set_viewport_size({"width": width_px, "height": 844})
        open_page(page, url)
        assert page.evaluate("document.documentElement.scrollWidth") <= width_px


@pytest.mark.parametrize(
    ("model", "right_eye"),
    [pytest.param("landmark_file", 36, marks=pytest.mark.slow), ("eyes_file", 0)],
)
def test_frames_are_shown_and_landmarks_corrected(  # noqa: PLR0917
    page: Any,
    video_session: Path,
    recording: Path,
    model: str,
    right_eye: int,
    request: pytest.FixtureRequest,
) -> None:
    landmarks = request.getfixturevalue(model)
    with (
        open_review(video_session, video=recording, landmarks=landmarks) as review,
        running_page(page, review) as url,
    ):
        open_page(page, url)
        painted = (
            "[...document.getElementById('picture').getContext('2d')"
            ".getImageData(200, 200, 40, 40).data].some((v, i) => i % 4 < 3 && v > 0)"
        )
        wait_for(page, painted)
        wait_for(page, "document.getElementById('readout').textContent.includes('FEC')")
        frame = int(page.evaluate("import('./static/store.js').then(m => m.store.frame)"))
        before = review.landmarks(frame)
        assert before is not None
        press(page, "l", "Tab", "ArrowUp", "ArrowUp", "Escape")
        wait_for(page, f"{STATUS}.includes('Landmarks of frame {frame} kept')")
        kept = review.state.frames[frame]
        lid = right_eye + 1
        assert kept.moved == (lid,)
        assert kept.landmarks is not None
        assert kept.landmarks[lid][1] == pytest.approx(before.landmarks[lid, 1] - 1.0, abs=0.01)
        assert kept.landmarks[right_eye] == pytest.approx(before.landmarks[right_eye], abs=0.01)
        press(page, "ArrowRight", "ArrowRight", "t")
        wait_for(page, f"{STATUS} === 'Frame {frame + 2} is used for training'")
        assert sorted(review.state.frames) == [frame, frame + 2]
        press(page, "t")
        wait_for(page, f"{STATUS} === 'Frame {frame + 2} is not used for training'")


def test_a_landmark_that_is_moved_while_an_earlier_move_is_kept_stays_moved(
    page: Any, video_session: Path, recording: Path, eyes_file: Path
) -> None:
    with (
        open_review(video_session, video=recording, landmarks=eyes_file) as review,
        running_page(page, review) as url,
    ):
        open_page(page, url)
        wait_for(page, "document.getElementById('readout').textContent.includes('FEC')")
        frame = int(page.evaluate("import('./static/store.js').then(m => m.store.frame)"))
        before = review.landmarks(frame)
        assert before is not None
        asked: list[Any] = []

        def answer_first_one_late(route: Any) -> None:
            asked.append(route)
            if len(asked) > 1:
                route.continue_()

        page.route(f"**/api/frames/{frame}?landmarks=1", answer_first_one_late)
        press(page, "l", "Tab", "ArrowUp")
        wait_until(lambda: page.evaluate("true") and asked)
        press(page, "ArrowUp")
        with page.expect_response("**?landmarks=1") as answered:
            asked[0].continue_()
        answered.value.finished()
        page.evaluate("fetch('api/state').then(answer => answer.json())")
        revision = review.revision
        press(page, "Escape")
        wait_until(lambda: page.evaluate("true") and review.revision > revision)
        kept = review.state.frames[frame].landmarks
        assert kept is not None
        assert kept[1][1] == pytest.approx(before.landmarks[1, 1] - 1.0, abs=0.01)
