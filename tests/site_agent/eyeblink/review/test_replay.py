"""Laws of the corrections: any actions, with undo and redo anywhere between them."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from site_agent.errors import ReviewActionError
from site_agent.eyeblink.review.actions import (
    Accept,
    Action,
    Add,
    Correct,
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
    replay,
)

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
