"""The page's server over real HTTP: answers and refusals."""

import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import numpy as np
import pytest
from PIL import Image

from site_agent.eyeblink.review.review_session import ReviewSession, open_review
from site_agent.eyeblink.review.server import opening_page
from site_agent.pictures.video_reading import VideoReader
from tests.site_agent.eyeblink.review.conftest import running_review

Served = tuple[httpx.Client, str, ReviewSession]


def client_of(url: str) -> tuple[httpx.Client, str]:
    """Return a client for paths below the secret, and the secret."""
    token = urlsplit(url).path.strip("/")
    headers = {"x-review-token": token}
    return httpx.Client(base_url=url, headers=headers, trust_env=False, timeout=540), token


@pytest.fixture
def trace_page(trace_session: Path) -> Iterator[Served]:
    with open_review(trace_session, reviewer="Ada") as review, running_review(review) as url:
        client, token = client_of(url)
        with client:
            yield client, token, review


@pytest.fixture
def video_page(
    video_session: Path, recording: Path, request: pytest.FixtureRequest
) -> Iterator[Served]:
    landmarks = request.getfixturevalue(getattr(request, "param", "landmark_file"))
    with (
        open_review(video_session, video=recording, landmarks=landmarks) as review,
        running_review(review) as url,
    ):
        client, token = client_of(url)
        with client:
            yield client, token, review


def test_the_page_needs_nothing_from_outside(trace_page: Served) -> None:
    client, _, _ = trace_page
    page = client.get("")
    assert page.headers["content-type"].startswith("text/html")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert page.headers["referrer-policy"] == "no-referrer"
    names = set(re.findall(r'(?:src|href)="(static/[^"]+)"', page.text))
    seen: set[str] = set()
    while names:
        name = names.pop()
        seen.add(name)
        response = client.get(name)
        assert response.status_code == 200, name
        assert "https://" not in response.text
        assert not re.findall(r"http://(?!www\.w3\.org/2000/svg)", response.text), name
        names |= {f"static/{other}" for other in re.findall(r'from "\./([^"]+)"', response.text)}
        names -= seen
    assert {"static/main.js", "static/pictures.js", "static/review.css"} <= seen


def test_the_address_needs_the_secret(trace_page: Served) -> None:
    client, token, _ = trace_page
    base = str(client.base_url).removesuffix(f"{token}/")
    with httpx.Client(trust_env=False, timeout=540) as stranger:
        for path in ("", "api/session", "x/api/session", f"{token[:-1]}/", f"{token}x/"):
            assert stranger.get(base + path).status_code == 404, path
        assert stranger.get(f"{base}{token}/api/session").status_code == 200
        outside = {"host": "evil.example"}
        assert stranger.get(f"{base}{token}/", headers=outside).status_code == 421
        rebound = {"host": f"evil.example:{urlsplit(base).port}"}
        assert stranger.get(f"{base}{token}/", headers=rebound).status_code == 421


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"x-review-token": ""}, 403),
        ({"x-review-token": "wrong"}, 403),
        ({"host": "evil.example"}, 421),
    ],
)
def test_changes_need_the_token_header(
    trace_page: Served, headers: dict[str, str], status: int
) -> None:
    client, _, review = trace_page
    body = '{"revision": 0, "action": {"action": "accept", "blink_id": 1}}'
    sent = {"content-type": "application/json", **headers}
    assert client.post("api/actions", content=body, headers=sent).status_code == status
    assert review.revision == (1 if status == 200 else 0)
    assert client.put("api/actions", content=body, headers=sent).status_code in {405, 421}
    assert client.get("api/actions").status_code == 405


def test_other_files_are_not_served(trace_page: Served) -> None:
    client, _, _ = trace_page
    for path in ("static/../guard.py", "static/%2e%2e/guard.py", "static/", "static//etc/passwd"):
        assert client.get(path).status_code == 404, path


def act(client: httpx.Client, revision: int, **action: Any) -> httpx.Response:
    return client.post("api/actions", json={"revision": revision, "action": action})


def test_a_review_from_the_first_blink_to_undo(trace_page: Served) -> None:
    client, _, review = trace_page
    state = client.get("api/state").json()
    first = state["events"][0]
    state = act(client, 0, action="accept", blink_id=first["id"]).json()
    assert state["events"][0]["status"] == "accepted"
    assert (state["revision"], state["undoable"], state["redoable"]) == (1, 1, 0)
    suggested = client.get("api/suggestions/300").json()
    state = act(client, 1, **suggested).json()
    assert [e["status"] for e in state["events"]].count("added") == 1
    state = act(client, 2, action="undo").json()
    assert [e["status"] for e in state["events"]].count("added") == 0
    late = act(client, 1, action="delete", blink_id=first["id"])
    assert late.status_code == 409
    assert "another window" in late.json()["error"]
    assert client.get("api/state").json() == state
    assert review.revision == 3


@pytest.mark.parametrize(
    "body",
    [
        "",
        '{"revision": 0, "action": {"action": "burn"}}',
        '{"revision": 0, "action": {"action": "correct", "blink_id": 1, "onset_s": 1e999}}',
        '{"revision": 0, "action": {"action": "use_frame", "frame": 0, "landmarks": [[0, 0]]}}',
    ],
)
def test_a_malformed_action_is_refused(trace_page: Served, body: str) -> None:
    client, _, review = trace_page
    headers = {"content-type": "application/json"}
    assert client.post("api/actions", content=body, headers=headers).status_code == 400
    assert review.revision == 0


def test_the_trace_comes_as_wide_as_it_is_drawn(trace_page: Served) -> None:
    client, _, review = trace_page
    times_s = np.frombuffer(client.get("api/timestamps").content, dtype="<f8")
    assert np.array_equal(times_s, review.result.frames.timestamps_s)
    whole = client.get("api/trace", params={"from_s": 0, "to_s": 60, "points": 200}).json()
    assert not whole["exact"]
    assert len(whole["times_s"]) <= 200
    near = client.get("api/trace", params={"from_s": 2, "to_s": 3, "points": 200}).json()
    assert near["exact"]
    fec = review.result.signals["fec"]
    for frame, value in zip(near["frames"], near["high"]["fec"], strict=True):
        assert value is None if np.isnan(fec[frame]) else abs(value - fec[frame]) < 1e-4
    assert client.get("api/trace?from_s=a&to_s=2&points=9").status_code == 400


def test_each_frame_is_the_one_that_was_analysed(video_page: Served, recording: Path) -> None:
    client, _, _ = video_page
    with VideoReader(recording, pixels="rgb") as reader:
        frames = [frame.image for frame in reader.frames()]
    session = client.get("api/session").json()
    assert session["frames"] == len(frames)
    assert session["video"] == {"width_px": 320, "height_px": 240}
    for number in (200, 0, len(frames) - 1):
        data = client.get(f"api/frames/{number}.jpg").content
        shown = np.asarray(Image.open(io.BytesIO(data)), dtype=float)
        apart = [np.abs(shown - frames[n]).mean() for n in (number - 1, number) if n >= 0]
        assert apart[-1] == min(apart)
        assert apart[-1] < 3.0


@pytest.mark.parametrize(
    ("video_page", "count", "right_eye"),
    [("landmark_file", 68, 36), ("eyes_file", 12, 0)],
    indirect=["video_page"],
)
def test_corrected_landmarks_stay(video_page: Served, count: int, right_eye: int) -> None:
    client, _, _ = video_page
    facts = client.get("api/frames/40?landmarks=1").json()
    points = facts["landmarks"]
    assert len(points) == count
    left, top, right, bottom = facts["box"]
    lid = right_eye + 1
    assert left < points[lid][0] < (left + right) / 2
    assert top < points[lid][1] < bottom
    points[lid] = [points[lid][0], points[lid][1] - 2.5]
    state = act(client, 0, action="use_frame", frame=40, landmarks=points, moved=[lid]).json()
    assert state["training"] == [{"frame": 40, "moved": [lid]}]
    assert client.get("api/frames/40").json()["landmarks"] == points
    assert act(client, 1, action="drop_frame", frame=40).json()["training"] == []
    assert act(client, 2, action="use_frame", frame=10**6).status_code == 409


def test_the_file_that_opens_the_page_is_private() -> None:
    with opening_page("http://127.0.0.1:1/secret/") as path:
        assert path.stat().st_mode & 0o077 == 0
        assert path.parent.stat().st_mode & 0o077 == 0
        assert "http://127.0.0.1:1/secret/" in path.read_text()
    assert not path.exists()
