"""The lab's work through the app, without a browser's script."""

import html
import io
import json
import os
import shutil
import threading
import time
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from site_agent.app.places import allowed_folder
from site_agent.app.recordings import Recording, Standing, Studies, Study, read_names
from site_agent.app.rendering import plainly
from site_agent.app.watching import Watch
from site_agent.errors import InvalidInputError
from site_agent.eyeblink.session import BlinkAnalysisSettings
from site_agent.eyeblink.video.recording import Recording as Video
from site_agent.jobs import analysing
from site_agent.jobs.analysing import analyse, analysis_request, look_at_videos
from site_agent.jobs.folder import JobFolder, State, this_process
from site_agent.work import no_progress
from site_agent.work.files import ends_digest
from tests.site_agent.app.running_app import RunningApp, running_app
from tests.waiting import wait_until


@pytest.fixture
def studies(tmp_path: Path) -> Studies:
    (tmp_path / "app").mkdir()
    return Studies(tmp_path / "app", tmp_path / "r")


def state_of(app: RunningApp, recording: Recording) -> str:
    standings = app.lab.studies.standings(app.lab.studies.current(), app.lab.jobs.views())
    (state,) = (standing.state for standing in standings if standing.recording == recording)
    return state


def test_each_recording_has_a_state_and_a_reason(app: RunningApp) -> None:
    study = app.lab.studies.current()
    standings = {
        standing.recording.file_name: standing
        for standing in app.lab.studies.standings(study, app.lab.jobs.views())
    }
    states = {name: standing.state for name, standing in standings.items()}
    assert states["P03_s1 <b>.mp4"] in {"review", "done"}
    assert states["P05_s1.mp4"] == "failed"
    assert standings["P05_s1.mp4"].reason.startswith("cannot be opened as a video")
    cut = standings["P04_s2_grün.mp4"]
    assert cut.state == "failed" or cut.record.warnings  # type: ignore[union-attr]
    dark = standings["P06_s1.mp4"].record
    assert dark is not None
    assert standings["P06_s1.mp4"].blinks == "blinks not known"
    number = standings["P06_s1.mp4"].recording.recording
    page = app.get(f"/results/{number}").text
    assert "is not known: the eyes were seen in no frame" in page
    seen = page.index("The eyes were seen in 0 %")
    first = html.escape(plainly(dark.warnings[0]))
    assert seen < page.index(first), "the strongest remark first"
    assert standings["P03_s1 <b>.mp4"].facts["rate_hz"]
    assert standings["P05_s1.mp4"].facts["problem"]
    page = app.get("/videos").text
    assert "P03_s1 &lt;b&gt;.mp4" in page
    assert "P03_s1 <b>" not in page
    assert "failed" in page
    assert "1 recording failed" in app.get("/").text


def test_recordings_are_taken_out_of_the_list_and_brought_back(app: RunningApp) -> None:
    before = {row.recording for row in app.lab.studies.current().recordings()}
    (number, *_) = before
    answer = app.post("/videos/chosen", recording=number, do="forget")
    assert {row.recording for row in app.lab.studies.current().recordings()} == before - {number}
    assert "Undo" in app.client.get(f"{app.origin}{answer.headers['location']}").text
    app.post("/videos/restore")
    assert {row.recording for row in app.lab.studies.current().recordings()} == before
    # Also days later, from the bin.
    app.post("/videos/chosen", recording=number, do="forget")
    app.post("/videos/restore", recording=number)
    assert {row.recording for row in app.lab.studies.current().recordings()} == before
    app.post("/videos/chosen", recording=number, do="forget")
    study = app.lab.studies.current()
    assert "Taken out" in app.get("/videos?state=bin").text
    binned = study.recordings(study.bin)
    study.write((replace(row, added="2020-01-01T00:00:00+00:00") for row in binned), study.bin)
    assert app.lab.studies.binned(study) == []
    study.write(binned, study.bin)
    app.post("/videos/restore")
    analyse = app.post("/videos/chosen", recording=[number])
    assert analyse.headers["location"].endswith(f"/videos/analyse?recording={number}")


def test_new_and_moved_videos_are_noticed(tmp_path: Path, studies: Studies) -> None:
    videos, later = tmp_path / "videos", tmp_path / "videos" / "later"
    later.mkdir(parents=True)
    for name in ("P1_s1.mp4", "P1_s1_trials.csv", "P1_s2.mp4"):
        (videos / name).write_text("content")
    first = videos / "P1_s1.mp4"
    study = studies.add(videos, [first], {first: videos / "P1_s1_trials.csv"})
    watch = Watch(studies)
    watch.look()
    assert watch.fresh == {}, "may still be being copied"
    watch.look()
    assert watch.fresh == {videos: 1}
    for name in ("P1_s1.mp4", "P1_s1_trials.csv"):
        (videos / name).rename(later / name)
    studies.follow_moved(study, [videos])
    assert study.recordings()[0].video == str(first), "of one without an analysis a person says so"
    studies.follow_moved(study, [videos], by_name=True)
    [row] = study.recordings()
    assert (row.video, row.trials) == (str(later / "P1_s1.mp4"), str(later / "P1_s1_trials.csv"))
    elsewhere = tmp_path / "elsewhere"
    later.rename(elsewhere)
    watch.look()
    assert watch.lost == {row.recording}
    studies.follow_moved(study, [elsewhere], by_name=True)
    watch.look()
    assert watch.lost == set()
    assert study.recordings()[0].video == str(elsewhere / "P1_s1.mp4")
    # Of one that was looked at, beginning and end tell: not the name, nor the word of a person.
    (study.looks).mkdir(parents=True)
    ends = ends_digest(elsewhere / "P1_s1.mp4")
    (study.looks / f"{row.recording}.json").write_text(json.dumps({"ends": ends}))
    elsewhere.rename(tmp_path / "again")
    elsewhere.mkdir()
    (elsewhere / "P1_s1.mp4").write_text("notmine")
    (tmp_path / "other").mkdir()
    (elsewhere / "P1_s1.mp4").rename(tmp_path / "other" / "P1_s1.mp4")
    studies.follow_moved(study, [tmp_path / "other"], by_name=True)
    assert study.recordings()[0].video == str(elsewhere / "P1_s1.mp4")
    studies.follow_moved(study, [tmp_path / "other", tmp_path / "again"])
    assert study.recordings()[0].video == str(tmp_path / "again" / "P1_s1.mp4")
    shutil.rmtree(elsewhere)
    (tmp_path / "again").rename(elsewhere)
    studies.follow_moved(study, [elsewhere])
    assert study.recordings()[0].video == str(elsewhere / "P1_s1.mp4")
    # The video of another recording is never taken for a moved one.
    (tmp_path / "day2").mkdir()
    (elsewhere / "P1_s1.mp4").rename(tmp_path / "day2" / "P1_s1.mp4")
    studies.add(tmp_path / "day2", [tmp_path / "day2" / "P1_s1.mp4"], {})
    studies.follow_moved(study, [tmp_path / "day2"], by_name=True)
    assert study.recordings()[0].video == str(elsewhere / "P1_s1.mp4")
    # One without trials has none afterwards either.
    (tmp_path / "day2" / "P1_s1.mp4").rename(tmp_path / "other" / "P1_s1.mp4")
    studies.follow_moved(study, [tmp_path / "other"], by_name=True)
    second = study.recordings()[1]
    assert (second.video, second.trials) == (str(tmp_path / "other" / "P1_s1.mp4"), "")


def test_a_moved_folder_is_asked_about_before_its_videos_are_added(tmp_path: Path) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    before.mkdir()
    for name in ("P1.mp4", "P2.mp4"):
        (before / name).write_text(name)
    with running_app(tmp_path / "h", tmp_path / "r") as app:
        study = app.lab.studies.add(before, [before / "P1.mp4"], {})
        [row] = study.recordings()
        before.rename(after)
        app.lab.watch.look()
        assert "Where is 1 video of the study now?" in app.get("/videos/add").text
        place = app.lab.places.place(after).id
        page = app.get(f"/videos/add?place={place}").text
        assert "Was 1 video of the study moved here?" in page
        assert '<button class="main">They were moved here' in page
        assert "<button>Add the chosen videos" in page
        assert 'value="P1.mp4">' in page, "not ticked"
        assert 'value="P2.mp4" checked>' in page
        study.looks.mkdir(parents=True)
        (study.looks / f"{row.recording}.json").write_text('{"ends": "of another file"}')
        refused = app.post("/videos/moved", place=place)
        assert refused.status_code == 409
        assert "nothing was changed" in refused.text
        (study.looks / f"{row.recording}.json").unlink()
        assert app.post("/videos/moved", place=place).status_code == 303
        assert study.recordings()[0].video == str(after / "P1.mp4")


def test_a_video_that_was_mended_is_no_longer_listed_as_unreadable(
    tmp_path: Path, studies: Studies
) -> None:
    video = tmp_path / "P1.mp4"
    video.write_text("no video")
    study = studies.add(tmp_path, [video], {})
    study.looks.mkdir(parents=True)
    facts = study.looks / f"{study.recordings()[0].recording}.json"
    facts.write_text('{"problem": "is no video"}')
    assert [standing.state for standing in studies.standings(study, [])] == ["failed"]
    os.utime(facts, (0, 0))  # the file has changed since
    assert [standing.state for standing in studies.standings(study, [])] == ["new"]


def test_a_copy_of_a_video_is_named(tmp_path: Path) -> None:
    videos = [tmp_path / name for name in ("P1.mp4", "P2.mp4", "P3.mp4")]
    for path, content in zip(videos, ("a", "b", "a"), strict=True):
        path.write_text(content)
    with running_app(tmp_path / "h", tmp_path / "r") as app:
        study = app.lab.studies.add(tmp_path, videos, {})
        study.looks.mkdir(parents=True)
        for row in study.recordings():
            facts = {"ends": ends_digest(Path(row.video))}
            (study.looks / f"{row.recording}.json").write_text(json.dumps(facts))
        assert app.get("/videos").text.count("seems to be a copy of P1.mp4: both count") == 1
        assert "P3.mp4 seems to be a copy of P1.mp4: both count" in app.get("/results").text


def test_an_error_of_one_look_does_not_end_the_watch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    watch, ended, turns = Watch(Studies(tmp_path, tmp_path)), threading.Event(), []

    def look() -> None:
        turns.append("look")
        if len(turns) == 2:
            ended.set()
        raise ValueError("unexpected")

    monkeypatch.setattr(watch, "look", look)
    monkeypatch.setattr(watch, "ask_pool", look)
    monkeypatch.setattr("site_agent.app.watching._INTERVAL_S", 0.01)
    watch.run(ended)
    assert len(turns) >= 2
    assert "ValueError: unexpected" in caplog.text


def test_dropped_files_are_looked_for_by_name(app: RunningApp, videos: Path) -> None:
    answer = app.post("/videos/find", name=["P05_s1.mp4", "../P05_s1.mp4"])
    place = app.get(answer.headers["location"].removeprefix(f"/{app.folder.prefix()}")).text
    assert "P05_s1.mp4" in place
    assert "Where is holiday.mp4?" in app.post("/videos/find", name="holiday.mp4").text
    number = app.lab.places.place(videos).id
    assert app.post("/videos/moved", place=number).status_code == 303
    assert app.lab.studies.current().added == (str(videos),)


def test_another_study_is_shown_after_a_switch(app: RunningApp) -> None:
    first = app.lab.studies.current()
    app.lab.studies.keep(replace(first, id="other", name="Pilot", folder=f"{first.folder}-2"))
    page = app.get("/videos").text
    assert "Study: Pilot" in page
    assert "Show My recordings" in page
    app.post("/studies/switch", study=first.id)
    assert app.lab.studies.current() == first
    assert app.post("/studies/switch", study="none").status_code == 404


def test_names_become_participants_and_sessions(app: RunningApp) -> None:
    rows = {row.file_name: row for row in app.lab.studies.current().recordings()}
    row = rows["P04_s2_grün.mp4"]
    assert (row.participant, row.session_number) == ("P04", "2")
    app.post("/videos/cells", **{f"group-{row.recording}": "paired, left"})
    assert app.lab.studies.current().find(row.recording).group == "paired, left"
    app.post("/videos/cells", **{f"group-{row.recording}": ""})
    wait_until(lambda: all(view.ended for view in app.lab.jobs.views()))
    other = rows["P05_s1.mp4"].recording
    refused = app.post(
        "/videos/cells", **{f"session_number-{row.recording}": "eins", f"group-{other}": "left"}
    )
    assert refused.status_code == 422
    assert "P04_s2_grün.mp4: the session is eins, expected a number" in refused.text
    assert 'value="eins" aria-invalid="true"' in refused.text
    assert app.lab.studies.current().find(row.recording).session_number == "2"
    assert app.lab.studies.current().find(other).group == "left", "the other rows are kept"
    app.post("/videos/cells", **{f"group-{other}": ""})
    wait_until(lambda: all(view.ended for view in app.lab.jobs.views()))


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["sub-03_ses-2.mp4", "sub-04_ses-10.mp4"], [("03", "2"), ("04", "10")]),
        (["P03 session 2.mp4", "P04-s03.mov"], [("P03", "2"), ("P04", "3")]),
        (["VP1_1.avi", "VP12_2.avi"], [("VP1", "1"), ("VP12", "2")]),
        (["holiday.mp4", "garden.mp4"], [("", ""), ("", "")]),
    ],
)
def test_the_pattern_that_explains_most_names_wins(
    names: list[str], expected: list[tuple[str, str]]
) -> None:
    paths = [Path(name) for name in names]
    readings = read_names(paths)
    assert [readings[path] for path in paths] == expected


def test_a_result_shows_verdict_files_and_frames(app: RunningApp) -> None:
    study = app.lab.studies.current()
    (row,) = (row for row in study.recordings() if "P03" in row.file_name)
    # A test of the browser may have reviewed it before.
    before = state_of(app, row)
    page = app.get(f"/results/{row.recording}").text
    assert "blink" in page
    assert "a minute" in page
    here = f"/results/{row.recording}"
    assert app.get(f"{here}/files/blinks.csv?save=1").headers["content-disposition"]
    report = app.get(f"{here}/files/report.html")
    assert "sandbox" in report.headers["content-security-policy"]
    frames = list(islice((Video(Path(row.video)).open("rgb")).frames(), 12))
    for number in (0, 10):
        content = app.get(f"{here}/review/api/frames/{number}.jpg").content
        shown = np.asarray(Image.open(io.BytesIO(content)).convert("RGB"), dtype=float)
        assert np.abs(shown - frames[number].image).mean() < 3.0, "the decoded frame, but for JPEG"
    assert app.get(f"/pictures/{row.recording}.jpg").content[:2] == b"\xff\xd8"
    review = app.get(f"{here}/review/").text
    assert f'name="csrf" content="{app.csrf()}"' in review
    assert state_of(app, row) == before, "whoever looks has reviewed nothing"


def test_results_show_the_study_and_name_those_left_out(app: RunningApp) -> None:
    page = app.get("/results").text
    assert "in 3 sessions" in page or "in 2 sessions" in page
    assert "Left out" in page
    assert page.index("Left out") < page.index("P05_s1.mp4")
    saved = app.get("/results/files/sessions.csv?save=1")
    study = app.lab.studies.current()
    assert saved.content == (study.place / "sessions.csv").read_bytes()
    assert "attachment" in saved.headers["content-disposition"]
    assert app.get("/results/files/recordings.csv").status_code == 404


@pytest.mark.parametrize(
    "path",
    [
        "/results/{id}/files/../../batch.csv",
        "/results/{id}/files/..%2Fbatch.csv",
        "/results/{id}/files/study.json",
        "/results/{id}/files/%2Fetc%2Fpasswd",
        "/results/..%2f..%2f/",
        "/pictures/..%2Fx.jpg",
        "/jobs/..%2F..",
        "/static/0/..%2F..%2Fentry.py",
    ],
)
def test_no_address_reads_another_file(app: RunningApp, path: str) -> None:
    (row, *_) = app.lab.studies.current().recordings()
    assert app.get(path.format(id=row.recording)).status_code in {404, 405, 409}


def test_folders_of_others_keys_and_devices_are_not_listed(
    app: RunningApp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "ada"
    (home / ".ssh").mkdir(parents=True)
    (home / "Videos" / "puff").mkdir(parents=True)
    (home / "Videos" / "away").symlink_to(home / ".ssh")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr("site_agent.app.places._HOMES", (tmp_path,))
    (tmp_path / "eve" / "Videos").mkdir(parents=True)
    (home / "file").touch()
    places = app.lab.places
    assert [place.name for place in places.below(places.place(home / "Videos"))] == ["puff"]
    refused = [home / ".ssh", home / "Videos" / "away", tmp_path / "eve" / "Videos", home / "file"]
    refused += [Path("/dev"), Path("/proc/self"), app.folder.place, home / "none"]
    monkeypatch.setenv("POOL_HOME", str(app.folder.place.parent))
    for path in refused:
        with pytest.raises(InvalidInputError):
            allowed_folder(path)
        if path.is_file():
            continue  # stands for its folder
        page = app.post("/videos/add/folder", folder=str(path))
        assert "This folder cannot be used" in page.text, path
    with pytest.raises(InvalidInputError, match="was not listed"):
        places.find("guessed")


@pytest.mark.parametrize("typed", ["", ".", "Videos", "/nul\0l", "/" + "long" * 2000])
def test_paths_that_are_none_are_refused_in_words(app: RunningApp, typed: str) -> None:
    page = app.post("/videos/add/folder", folder=typed)
    assert "This folder cannot be used" in page.text


def test_odd_files_of_a_folder_harm_nothing(app: RunningApp, tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"caf\xe9.mp4")).touch()
    (tmp_path / "P1_s1.mp4").touch()
    (tmp_path / "P1_s1_trials.csv").symlink_to("/etc/passwd")
    os.mkfifo(tmp_path / "P2.mp4")
    (tmp_path / "eeg.dat").write_bytes(b"samples" * 1000)
    os.mkfifo(tmp_path / "pipe.dat")
    place = app.lab.places.place(tmp_path)
    page = app.get(f"/videos/add?place={place.id}").text
    assert "signs that are no text" in page
    assert "P2.mp4" not in page
    assert "passwd" not in page
    assert "_trials.csv" not in page
    refused = app.post("/videos/add/videos", place=place.id)
    assert "no video is chosen" in refused.text
    study = app.lab.studies.current()
    added = replace(study, added=(*study.added, str(tmp_path)))
    assert {"eeg.dat", "pipe.dat"}.isdisjoint(m.name for m in app.lab.models(added))


def look(place: Path, study: Study) -> dict[str, Any]:
    """Look at the videos of a study, in the place of the runner."""
    jobs = JobFolder(place / "jobs")
    videos = {row.recording: row.video for row in study.recordings()}
    job = jobs.add("look", "Look", {"videos": videos, "looks": str(study.looks)})
    request = {**job.request, "id": job.id, "jobs": str(jobs.place)}
    result = look_at_videos(request, no_progress)
    jobs.finish(job.id, "done", result=result)
    return result


def test_only_a_video_that_ended_the_process_is_said_to(
    studies: Studies, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "P1.mp4").touch()
    study, jobs = studies.add(tmp_path, [tmp_path / "P1.mp4"], {}), JobFolder(tmp_path / "jobs")
    [row] = study.recordings()
    looks = {"videos": {row.recording: row.video}, "looks": str(study.looks)}
    job = jobs.add("look", "Look", looks)
    request = {**looks, "id": job.id, "jobs": str(jobs.place)}

    def standing() -> Standing:
        return studies.standings(study, jobs.views())[0]

    def end(*_: object) -> None:
        assert (standing().state, standing().facts["is_looked_at"]) == ("new", True)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(analysing, "_look_at", end)
        with pytest.raises(KeyboardInterrupt):
            look_at_videos(request, no_progress)
    jobs.write_state(job.id, State("running", attempt=2, process=this_process()))
    look_at_videos(request, no_progress)
    jobs.finish(job.id, "done")
    assert standing().reason == "cannot be read: it ends the process that reads it"
    assert standing().state == "failed"
    # One that was cancelled and asked for again looks again.
    (study.looks / f"{row.recording}.json").write_text(json.dumps({"look": job.id}))
    jobs.write_state(job.id, State("cancelled"))
    assert (standing().state, standing().reason) == ("new", "")
    jobs.retry(job.id)
    look_at_videos(request, no_progress)
    assert standing().reason == "is empty (0 bytes)"


@pytest.mark.parametrize("swapped", ["video", "folder"])
def test_a_link_that_takes_the_place_of_a_video_is_not_followed(
    recording: Path, landmark_file: Path, studies: Studies, tmp_path: Path, swapped: str
) -> None:
    folder, private = tmp_path / "videos", tmp_path / "private"
    for place in (folder, private):
        place.mkdir()
        shutil.copy(recording, place / "P1_s1.mp4")
    study = studies.add(folder, [folder / "P1_s1.mp4"], {})
    [row] = study.recordings()
    study.write([replace(row, landmarks=str(landmark_file))])
    session = study.sessions()[row.session]
    if swapped == "video":
        (folder / "P1_s1.mp4").unlink()
        (folder / "P1_s1.mp4").symlink_to(private / "P1_s1.mp4")
    else:
        folder.rename(tmp_path / "away")
        folder.symlink_to(private)
    assert look(tmp_path, study)["unreadable"] == 1
    assert not list(study.looks.glob("*.jpg"))
    request = analysis_request(session, study.place, BlinkAnalysisSettings())
    with pytest.raises(InvalidInputError, match="a link or a device lies where a file was added"):
        analyse({**request, "id": "x", "jobs": str(tmp_path)}, no_progress)
    assert not (study.place / row.session).exists()


def test_a_video_that_is_exchanged_while_it_is_read_has_no_result(
    recording: Path,
    landmark_file: Path,
    studies: Studies,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shutil.copy(recording, tmp_path / "P1_s1.mp4")
    study = studies.add(tmp_path, [tmp_path / "P1_s1.mp4"], {})
    [row] = study.recordings()
    study.write([replace(row, landmarks=str(landmark_file))])
    request = analysis_request(study.sessions()[row.session], study.place, BlinkAnalysisSettings())

    def exchange(*_: object) -> None:
        (tmp_path / "P1_s1.mp4").unlink()
        (tmp_path / "P1_s1.mp4").symlink_to(recording)

    monkeypatch.setattr(analysing, "run_job", exchange)
    with pytest.raises(InvalidInputError, match="lies where a file was added"):
        analyse({**request, "id": "x", "jobs": str(tmp_path)}, no_progress)
    assert not (study.place / row.session).exists()


@pytest.mark.slow
def test_a_folder_of_100_000_files_is_shown_in_part(app: RunningApp, tmp_path: Path) -> None:
    small, large = tmp_path / "small", tmp_path / "large"
    for folder, count in ((small, 500), (large, 50_000)):
        folder.mkdir()
        for number in range(count):
            (folder / f"P{number:05d}_s1.mp4").touch()
            (folder / f"P{number:05d}_s1_trials.csv").touch()
    sizes = {}
    for folder in (small, large):
        place = app.lab.places.place(folder)
        began_s = time.process_time()
        page = app.get(f"/videos/add?place={place.id}").text
        sizes[folder] = len(page)
        print(f"{folder.name}: {len(page):,} signs, {time.process_time() - began_s:.2f} s of work")
    assert "Of its 50000 videos and its folders the first 1000 by name are shown" in page
    assert "into a folder of their own" in page
    assert page.count('type="checkbox"') == 1000
    assert page.count("_trials.csv</td>") == 1000
    assert sizes[large] < 3 * sizes[small]


def test_what_was_typed_stays_after_a_refusal(app: RunningApp) -> None:
    row = app.lab.studies.current().recordings()[0].recording
    form = {"recording": row, "set:blinks.longest_blink_ms": "minus one", "model": "none"}
    answer = app.post("/videos/analyse/start", **form)
    assert answer.status_code == 422
    assert 'value="minus one"' in answer.text
    assert 'role="alert"' in answer.text


def test_a_job_is_cancelled_undone_and_explained(app: RunningApp) -> None:
    job = app.lab.jobs.add("study", "Slow tables", {"study": "/nowhere"}, after=["x"])
    held = app.lab.jobs.add("look", "Held", {"videos": {}, "looks": "/nowhere"}, after=[job.id])
    app.lab.jobs.cancel(job.id)
    answer = app.post(f"/jobs/{job.id}/retry", back="/jobs")
    assert answer.headers["location"].endswith("/jobs")
    wait_until(lambda: app.lab.jobs.view(job.id).ended)
    wait_until(lambda: app.lab.jobs.view(held.id).ended)
    page = app.get(f"/jobs/{job.id}").text
    assert "asked for again" in page
    assert f"poolctl jobs ls {job.id}" in page
    for number in (job.id, held.id):
        app.lab.jobs.remove(number)
    assert app.post("/jobs/ffff/cancel").status_code == 404
