"""Laws of corrections and of their log, and views of a trace that keep every extreme."""

import os
import signal
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from site_agent.errors import BusyError, ReviewActionError, ReviewFolderError, ReviewOutdatedError
from site_agent.eyeblink.review.actions import (
    Accept,
    Action,
    Add,
    Correct,
    CorrectionLog,
    Delete,
    DropFrame,
    Redo,
    Restore,
    ReviewEvent,
    ReviewState,
    ReviewStatus,
    Undo,
    UseFrame,
    effective_changes,
    read_log,
    replay,
)
from site_agent.eyeblink.review.endpoints import gap_runs, trace_window
from tests.conftest import PROJECT_ROOT

AUTOMATIC = tuple(
    ReviewEvent(n, "blink", float(n), n + 0.1, n + 0.25, "complete", status)
    for n, status in enumerate([ReviewStatus.UNREVIEWED] * 3 + [ReviewStatus.LEFT_OUT], 1)
)

IDS = st.integers(1, 7)

TIMES = st.none() | st.floats(0.0, 6.0)

ACTIONS = st.one_of(
    st.builds(Accept, blink_id=IDS),
    st.builds(Delete, blink_id=IDS),
    st.builds(Restore, blink_id=IDS),
    st.builds(
        Correct,
        blink_id=IDS,
        onset_s=TIMES,
        peak_s=TIMES,
        offset_s=TIMES,
        kind=st.sampled_from([None, "blink", "closure"]),
    ),
    st.builds(
        lambda start: Add(onset_s=start, peak_s=start + 0.1, offset_s=start + 0.3),
        st.floats(0.0, 6.0),
    ),
    st.builds(UseFrame, frame=st.integers(0, 3)),
    st.builds(DropFrame, frame=st.integers(0, 3)),
    st.just(Undo()),
    st.just(Redo()),
)


def applicable(actions: list[Action]) -> list[Action]:
    """Leave out the changes that a review would refuse."""
    kept: list[Action] = []
    for action in actions:
        try:
            replay(AUTOMATIC, [*kept, action])
        except ReviewActionError:
            continue
        kept.append(action)
    return kept


def content(state: ReviewState) -> tuple[object, ...]:
    return state.events, dict(state.frames)


@given(st.lists(ACTIONS, max_size=14))
def test_the_state_is_that_of_the_changes_that_stand(actions: list[Action]) -> None:
    changes = applicable(actions)
    standing, taken_back = effective_changes(changes)
    state = replay(AUTOMATIC, changes)
    assert content(state) == content(replay(AUTOMATIC, standing))
    assert (state.undoable, state.redoable) == (len(standing), len(taken_back))


@given(st.lists(ACTIONS, max_size=12), ACTIONS)
def test_undo_takes_back_exactly_one_change(actions: list[Action], last: Action) -> None:
    before = applicable(actions)
    changes = applicable([*before, last])
    if len(changes) == len(before) or isinstance(last, Undo | Redo):
        return
    undone = replay(AUTOMATIC, [*changes, Undo()])
    assert content(undone) == content(replay(AUTOMATIC, before))
    assert content(replay(AUTOMATIC, [*changes, Undo(), Redo()])) == content(
        replay(AUTOMATIC, changes)
    )


@given(st.lists(ACTIONS, max_size=14))
def test_taking_everything_back_gives_the_automatic_result(actions: list[Action]) -> None:
    changes = applicable(actions)
    everything = [Undo()] * replay(AUTOMATIC, changes).undoable
    assert content(replay(AUTOMATIC, [*changes, *everything])) == (AUTOMATIC, {})


@given(st.lists(ACTIONS, max_size=14))
def test_blinks_stay_in_order_and_none_is_lost(actions: list[Action]) -> None:
    state = replay(AUTOMATIC, applicable(actions))
    ids = [event.blink_id for event in state.events]
    assert set(ids) >= {event.blink_id for event in AUTOMATIC}
    assert len(set(ids)) == len(ids)
    assert all(event.onset_s <= event.peak_s <= event.offset_s for event in state.events)
    assert list(state.events) == sorted(state.events, key=lambda e: (e.onset_s, e.blink_id))


def test_what_each_action_does() -> None:
    moved = Correct(blink_id=2, onset_s=1.9, completeness="partial")
    added = Add(onset_s=2.5, peak_s=2.6, offset_s=2.7)
    state = replay(AUTOMATIC, [Accept(blink_id=1), moved, Delete(blink_id=3), added])
    by_id = {event.blink_id: event for event in state.events}
    assert by_id[1] == replace(AUTOMATIC[0], status=ReviewStatus.ACCEPTED)
    assert by_id[2] == replace(
        AUTOMATIC[1], onset_s=1.9, completeness="partial", status=ReviewStatus.CORRECTED
    )
    assert by_id[3].status is ReviewStatus.DELETED
    assert (by_id[5].status, by_id[5].onset_s) == (ReviewStatus.ADDED, 2.5)
    restored = replay(AUTOMATIC, [moved, Restore(blink_id=2)])
    assert restored.events == AUTOMATIC


@pytest.mark.parametrize(
    ("actions", "what"),
    [
        ([Delete(blink_id=1), Accept(blink_id=1)], "restore it first"),
        ([Correct(blink_id=1, onset_s=3.0)], "in this order"),
        ([Undo()], "nothing to take back"),
    ],
)
def test_what_does_not_apply_is_refused(actions: list[Action], what: str) -> None:
    with pytest.raises(ReviewActionError, match=what):
        replay(AUTOMATIC, actions)


DIGEST = "a" * 64


@settings(max_examples=25)
@given(st.integers(0, 400), st.binary(max_size=12))
def test_a_torn_end_is_cut_off_and_the_rest_kept(
    tmp_path_factory: pytest.TempPathFactory, cut: int, rubbish: bytes
) -> None:
    folder = tmp_path_factory.mktemp("log")
    with closing(CorrectionLog(folder, DIGEST)) as log:
        for number in range(1, 4):
            log.append(Delete(blink_id=number), "Ada")
    data = log.path.read_bytes()
    kept = data[: min(cut, len(data))]
    whole_lines = kept.count(b"\n")
    log.path.write_bytes(kept + rubbish.replace(b"\n", b""))
    with closing(CorrectionLog(folder, DIGEST)) as again:
        assert len(again.entries) == max(0, whole_lines - 1)
        again.append(Accept(blink_id=9), "Ben")
    content = read_log(log.path)
    assert content.entries[-1].action == Accept(blink_id=9)
    assert content.whole_bytes == log.path.stat().st_size


def test_another_result_is_not_mixed_in(tmp_path: Path) -> None:
    folder = tmp_path / "review"
    with closing(CorrectionLog(folder, DIGEST)) as log:
        log.append(Accept(blink_id=1), "Ada")
    before = log.path.read_bytes()
    with pytest.raises(ReviewOutdatedError, match="1 corrections were made to another result"):
        CorrectionLog(folder, "b" * 64)
    assert log.path.read_bytes() == before
    folder.rename(tmp_path / "old")
    with closing(CorrectionLog(folder, "b" * 64)) as anew:
        assert anew.entries == ()


def test_only_one_process_writes(tmp_path: Path) -> None:
    folder = tmp_path / "review"
    with (
        closing(CorrectionLog(folder, DIGEST)) as log,
        closing(CorrectionLog(folder, DIGEST)) as late,
    ):
        assert not folder.exists(), "looking leaves no files"
        log.append(Accept(blink_id=1), "Ada")
        with pytest.raises(BusyError, match="another process"):
            CorrectionLog(folder, DIGEST)
        with pytest.raises(BusyError, match="another process"):
            late.append(Undo(), "Ben")
        log.close()
        with pytest.raises(ReviewFolderError, match="was begun by another process meanwhile"):
            late.append(Accept(blink_id=2), "Ben")
    with closing(CorrectionLog(folder, DIGEST)) as again:
        assert len(again.entries) == 1


def test_damage_in_the_middle_is_refused(tmp_path: Path) -> None:
    with closing(CorrectionLog(tmp_path, DIGEST)) as log:
        log.append(Undo(), "Ada")
    data = log.path.read_bytes() + b"no json\n"
    log.path.write_bytes(data)
    with pytest.raises(ReviewFolderError, match="line 3: is damaged"):
        CorrectionLog(tmp_path, DIGEST)
    assert log.path.read_bytes() == data


def test_a_killed_process_loses_nothing_that_it_confirmed(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "from site_agent.eyeblink.review.actions import Accept\n"
        "from site_agent.eyeblink.review.actions import CorrectionLog\n"
        f"log = CorrectionLog(Path(sys.argv[1]), {DIGEST!r})\n"
        "for number in range(1, 100_000):\n"
        "    log.append(Accept(blink_id=number), 'Ada'); print(number, flush=True)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)],
        cwd=PROJECT_ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    for _ in range(40):
        process.stdout.readline()
    os.kill(process.pid, signal.SIGKILL)
    confirmed = 40 + len([line for line in process.stdout.read().splitlines() if line.isdigit()])
    process.stdout.close()
    process.wait()
    with closing(CorrectionLog(tmp_path, DIGEST)) as log:
        assert len(log.entries) >= confirmed
        assert [entry.number for entry in log.entries] == list(range(1, len(log.entries) + 1))


@given(st.integers(2, 400), st.integers(16, 60), st.floats(-1.0, 9.0), st.floats(0.1, 12.0))
def test_no_extreme_is_lost(count: int, points: int, from_s: float, length_s: float) -> None:
    rng = np.random.default_rng(count)
    times_s = np.cumsum(rng.uniform(0.01, 0.05, count))
    signal = rng.normal(size=count)
    signal[rng.uniform(size=count) < 0.2] = np.nan
    to_s = from_s + length_s
    window = trace_window(times_s, {"x": signal}, from_s, to_s, points)
    inside = signal[(times_s >= from_s) & (times_s < to_s)]
    known = inside[np.isfinite(inside)]
    assert len(window.times_s) <= max(points, 2)
    if len(known):
        assert np.nanmax(window.highs["x"]) >= known.max()
        assert np.nanmin(window.lows["x"]) <= known.min()
    if window.is_exact:
        assert np.array_equal(signal[window.frames], window.highs["x"], equal_nan=True)


def test_where_the_eyes_were_not_seen() -> None:
    times_s = np.arange(4, dtype=np.float64)
    gaps = gap_runs(times_s, np.array([1, 1, 0, 2], dtype=np.uint8))
    assert gaps == [(0.0, 1.0, 1), (3.0, 3.0, 2)]
