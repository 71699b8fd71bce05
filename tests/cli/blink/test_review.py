"""``poolctl blink review`` as people call it."""

import json
import math
import re
import signal
from pathlib import Path

import httpx
import pytest

from site_agent.eyeblink.review.actions import Accept
from site_agent.eyeblink.review.review_session import open_review
from tests.cli.conftest import Run, first_answer, start_process


@pytest.fixture
def results(tmp_path: Path, poolctl: Run) -> Path:
    trace = tmp_path / "ear.txt"
    closing = [math.exp(-(((i % 90) - 45) ** 2) / 8) for i in range(900)]
    trace.write_text("\n".join(f"{0.3 - 0.22 * value:.4f}" for value in closing))
    out = tmp_path / "out"
    assert poolctl(*("blink", trace, "--frame-rate-hz", "30", "-o", out, "-q")).code == 0
    return out


def test_a_review_ends_well_with_ctrl_c(results: Path, poolctl: Run) -> None:
    arguments = ("blink", "review", results, "--no-browser", "--json", "--reviewer", "Ada")
    process = start_process(*arguments)
    data = first_answer(process)
    assert data["url"].startswith("http://127.0.0.1:")
    assert data["reviewer"] == "Ada"
    token = data["url"].split("/")[3]
    with httpx.Client(base_url=data["url"], trust_env=False, timeout=540) as client:
        body = {"revision": 0, "action": {"action": "delete", "blink_id": 3}}
        response = client.post("api/actions", json=body, headers={"x-review-token": token})
        assert response.status_code == 200
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=540)
    assert process.returncode == 0, errors
    assert "Traceback" not in errors
    log = (results / "review" / "corrections.jsonl").read_text().splitlines()
    assert json.loads(log[1])["reviewer"] == "Ada"
    assert "\n3," not in (results / "review" / "blinks_reviewed.csv").read_text()
    told = poolctl("blink", "report", results, "--reviewed").out
    assert re.search(r"in 1 session \(\d+ blinks? not reviewed\)\.", told)
    assert "1 deleted" in told
    again = poolctl("blink", results.parent / "ear.txt", "--frame-rate-hz", "30", "-o", results)
    assert "has a review" in again.err


def test_what_cannot_be_reviewed_is_told(results: Path, tmp_path: Path, poolctl: Run) -> None:
    def refused(*arguments: object) -> tuple[int, str]:
        shown = poolctl("blink", "review", *arguments, "--json")
        return shown.code, shown.error["code"]

    assert refused(tmp_path) == (5, "review_folder")
    assert refused(results, "--video", tmp_path / "a.mp4") == (6, "review_outdated")
    assert refused(results, "--trace-only", "--video", "a.mp4") == (2, "usage")
    assert refused(results, "--export", tmp_path / "a.xml") == (2, "invalid_input")
    with open_review(results, trace_only=True) as review:
        review.act(Accept(blink_id=1))
    (results / "blinks.csv").write_text((results / "blinks.csv").read_text() + "\n")
    assert refused(results) == (6, "review_outdated")


def test_blink_needs_no_name_of_a_command(results: Path, poolctl: Run) -> None:
    trace = results.parent / "ear.txt"
    arguments = (trace, "--frame-rate-hz", "30", "--json")
    short = poolctl("blink", *arguments, "-o", results.parent / "short").data
    long = poolctl("blink", "analyse", *arguments, "-o", results.parent / "long").data
    assert short["blinks"] == long["blinks"]
    shown = poolctl("blink", "--help")
    assert shown.code == 0
    assert "review" in shown.out.split("Commands:")[1]
    assert "--landmarks" in shown.out
