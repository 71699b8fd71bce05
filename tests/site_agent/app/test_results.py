"""The results of a study with two groups: the verdict, and the figures that it stands on."""

import csv
import json
import math
import os
import re
from collections.abc import Iterator
from typing import Any

import pytest

from site_agent.app.recordings import Recording, Standing, Study
from site_agent.app.results import difference_verdict, study_verdict
from site_agent.eyeblink.batch import run_batch
from site_agent.eyeblink.batch.record import Request, SessionRecord
from site_agent.eyeblink.batch.sessions import read_session_table
from site_agent.eyeblink.review.actions import Accept, Delete
from site_agent.eyeblink.review.review_session import open_review
from site_agent.eyeblink.study import write_study
from site_agent.eyeblink.study.learning_curve import UNTOLD
from site_agent.jobs.folder import JobFolder
from tests.site_agent.app.running_app import RunningApp, running_app
from tests.site_agent.app.test_app_in_chromium import CHROMIUM, chromium, let_in
from tests.site_agent.app.test_models import do
from tests.site_agent.eyeblink.drawn_studies import write_session

__all__ = ["chromium"]
PEOPLE = {f"P0{place}": "paired" if place < 4 else "unpaired" for place in range(1, 7)}


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningApp]:
    """An app with a study of six participants in two groups, two sessions each."""
    place = tmp_path_factory.mktemp("groups")
    lines = ["session,trace,trials,participant,session_number,group"]
    for seed, (person, group) in enumerate(PEOPLE.items()):
        for number in (1, 2):
            name, learnt = f"{person}s{number}", 0.9 if group == "paired" else 0.1
            write_session(place, name, 10 * seed + number, learnt - 0.05 * (number == 1))
            lines.append(f"{name},{name}.csv,{name}_trials.csv,{person},{number},{group}")
    (place / "sessions.csv").write_text("\n".join(lines) + "\n")
    with pytest.MonkeyPatch.context() as patch, running_app(place / "h", place / "r") as app_:
        patch.setenv("POOL_HOME", str(place / "h"))
        patch.setattr(JobFolder, "start_runner", lambda _: None)
        study = Study("air", "Air-puff study", str(place / "study"))
        sessions = read_session_table(place / "sessions.csv").sessions
        write_study(study.place, run_batch(sessions, study.place).records)
        study.write(
            Recording(name, str(place / f"{name}.csv"), "", name[:3], name[4:], PEOPLE[name[:3]])
            for name in (session.name for session in sessions)
        )
        app_.lab.studies.keep(study)
        yield app_


def test_results_begin_with_the_difference_between_groups(app: RunningApp) -> None:
    study = app.lab.studies.current().place
    fits = json.loads((study / "learning_curve.json").read_text())
    [difference] = [row for row in fits["differences"] if row["measure"] == "cr_percent"]
    page = app.get("/results").text
    verdict = page.partition('<p class="verdict"><b>')[2].partition("</b>")[0]
    assert verdict.startswith(difference_verdict(difference, "cr_percent"))
    assert difference["groups"] == ["paired", "unpaired"]
    assert difference["verdict"] == "negative"
    assert f"{-difference['estimate']:.3g} points more in paired than in unpaired" in verdict
    text = re.sub(r"<[^>]+>", " ", page[page.index('id="people-of"') :]).split()
    [curve] = [fit for fit in fits["groups"]["paired"] if fit["measure"] == "cr_percent"]
    values = {point["position"]: point["value"] for point in curve["points"][:2]}
    row = text.index("P01")
    assert text[row + 1] == "paired"
    assert [text[row + 2], text[row + 4]] == [f"{values[1.0]:.0f}", f"{values[2.0]:.0f}"]


@pytest.mark.parametrize(
    ("ends", "verdict", "text"),
    [
        ((-60.0, -20.0), "negative", "40 points more in a than in b (95 %: 20 to 60 points)."),
        ((20.0, 60.0), "positive", "40 points more in b than in a (95 %: 20 to 60 points)."),
        ((30.0, 146.0), "positive", "88 points more in b than in a (95 %: 30 to 100 points)."),
        ((-8.0, 20.0), "unclear", "no clear difference of b from a (95 %: −8 to 20 points)."),
    ],
)
def test_the_verdict_names_the_higher_group(
    ends: tuple[float, float], verdict: str, text: str
) -> None:
    facts = {"estimate": sum(ends) / 2, "low": ends[0], "high": ends[1], "verdict": verdict}
    shown = difference_verdict({**facts, "groups": ["a", "b"]}, "cr_percent")
    assert shown == f"Responses: {text}"


@pytest.mark.parametrize(
    ("low", "high", "verdict", "measure", "text"),
    [
        (-20.0, -13.0, "negative", "cr_percent", "A: responses fall by 16.5 points a session; B: "),
        (0.1, 0.3, "positive", "amplitude_cr", "A: amplitude of responses rises by 0.2 FEC a"),
        (-0.1, 0.3, "unclear", "amplitude_all", "A: amplitude, all trials does not clearly change"),
        (None, None, UNTOLD, "cr_percent", "are too few or too alike to tell how responses change"),
    ],
)
def test_a_change_is_told_in_its_unit_and_only_with_an_interval(
    low: float, high: float, verdict: str, measure: str, text: str
) -> None:
    estimate = -16.7 if low is None else (low + high) / 2
    slope = {"estimate": estimate, "low": low, "high": high, "verdict": verdict}
    record = SessionRecord("s", "", "", math.nan, Request("", None, {}, {}), {"blinks": 7})
    shown = [Standing(Recording("s", ""), "done", record=record)]
    curves = [("A", {"slope": slope}), ("B", {"slope": {"verdict": UNTOLD, "estimate": 0.0}})]
    assert text in study_verdict(curves, shown, measure)
    assert study_verdict(curves[1:], [], measure) == "No recording is analysed yet."


def test_no_table_is_offered_before_it_is_final(app: RunningApp) -> None:
    files = {"participants.csv", "sessions.png", "sessions.csv", "batch.csv"}
    study = app.lab.studies.current()
    page = app.get("/results").text
    assert all(f"/results/files/{name}?save=1" in page for name in files)
    assert app.get("/results/files/participants.csv").status_code == 200
    job = app.lab.jobs.add("study", "Tables", {"study": study.folder}, gathers=True)
    curve = study.place / "learning_curve.json"
    curve.rename(curve.with_suffix(".kept"))
    page = app.get("/results").text
    assert "The tables are being computed" in page
    assert "?save=1" not in page
    assert "A curve needs two sessions" not in page
    app.lab.jobs.cancel(job.id)
    assert "A curve needs two sessions" in app.get("/results").text
    curve.with_suffix(".kept").rename(curve)
    assert "The tables are being computed" not in app.get("/results").text


def test_a_conclusion_is_tried_under_other_definitions(app: RunningApp) -> None:
    form = {"measure": "cr_percent", "question": "groups"}
    assert app.post("/results/criteria", **form | {"question": "x"}).status_code == 404
    assert app.post("/results/criteria", **form).status_code == 303
    assert "Other definitions of a response for Air-puff study" in app.get("/results").text
    result = do(app, "criteria")
    study = app.lab.studies.current().place
    comparison = json.loads((study / "criteria.json").read_text())
    assert comparison["conclusion"] == result["conclusion"]
    page = app.get("/results").text
    differing = sum(not row["agrees"] for row in comparison["rows"])
    others = len(comparison["rows"]) - 1
    assert f"All {others} other" in page or f"{differing} of {others} other" in page
    assert "Try other definitions" in app.get("/results?measure=amplitude_all").text
    os.utime(study / "learning_curve.json")
    assert "Try other definitions" in app.get("/results").text, "the sessions have changed"
    os.utime(study / "criteria.json")


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
def test_results_of_groups_fit_every_window(app: RunningApp, chromium: Any) -> None:
    from axe_playwright_python.sync_playwright import Axe

    problems: list[Any] = []
    for theme, width in (("light", 1440), ("dark", 390)):
        viewport = {"width": width, "height": 900}
        page = let_in(chromium, app, problems, color_scheme=theme, viewport=viewport)
        for address in ("/results", "/results?measure=amplitude_cr"):
            page.goto(f"{app.address}{address}")
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            problems += [
                (violation["id"], [node["html"][:120] for node in violation["nodes"][:3]])
                for violation in Axe().run(page).response["violations"]
                if violation["impact"] in {"serious", "critical"}
            ]
    assert problems == []


def test_reviewed_blinks_take_the_place_of_those_that_were_found(app: RunningApp) -> None:
    study = app.lab.studies.current()
    place = study.place / "P01s1"
    (number,) = (row.recording for row in study.recordings() if row.session == "P01s1")
    here = f"/results/{number}"
    before = json.loads((place / "session.json").read_text())["blinks"]
    with open_review(place, trace_only=True) as review:
        numbers = [event.blink_id for event in review.state.events if event.is_blink]
        review.act(Delete(blink_id=numbers[0]))
        review.act(Accept(blink_id=numbers[1]))
        left = f"{len(numbers) - 2} not reviewed ({before['blinks']} found by the analysis)"
        assert left in app.get(here).text
        for blink in numbers[2:]:
            review.act(Accept(blink_id=blink))
    page = app.get(here).text
    rate = 60 * (before["blinks"] - 1) / before["seen_s"]
    assert f"{before['blinks'] - 1} blinks in" in page
    among = f"{rate:.1f} a minute with those of the trials"
    assert f"{among}; reviewed ({before['blinks']} found by the analysis)" in page
    table = app.get(f"{here}/files/blinks_reviewed.csv").text
    assert table.count("accepted") == len(numbers) - 1
    states = {s.recording.session: s.state for s in app.lab.studies.standings(study, [])}
    assert (states["P01s1"], states["P01s2"]) == ("done", "review")

    assert "Blinks were reviewed since" in app.get("/results").text
    assert do_gather(app) == pytest.approx(rate, abs=1e-5)
    assert "Blinks were reviewed since" not in app.get("/results").text

    blinks = place / "blinks.csv"
    blinks.write_bytes(blinks.read_bytes() + b"\n")
    os.utime(place / "study.json")
    assert f"{before['blinks']} blinks in" in app.get(here).text, "of an older result"


def do_gather(app: RunningApp) -> float:
    """Write the tables by the button of the page; return the rate of P01s1."""
    assert app.post("/results/reviewed").status_code == 303
    do(app, "study")
    table = app.get("/results/files/sessions_reviewed.csv").text
    (row,) = (row for row in csv.DictReader(table.splitlines()) if row["session"] == "P01s1")
    return float(row["blinks_per_minute"])
