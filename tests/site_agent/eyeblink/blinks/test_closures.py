"""Closures are found however slowly the lids fall; eyes that only narrow are none."""

from __future__ import annotations

import pytest

from site_agent.eyeblink.blinks.finding import doubts_of, find_blinks, judge_blinks
from tests.site_agent.eyeblink.drawn_lids import DrawnLids, LidDrawing, draw_lids
from tests.site_agent.eyeblink.matching import match_blinks


def found_of(drawn: DrawnLids) -> list[tuple[str, float, float]]:
    return [(each.kind, each.onset_s, each.offset_s) for each in find_blinks(drawn.trace)]


@pytest.mark.parametrize("rate_hz", [15.0, 30.0, 60.0, 200.0])
def test_slow_closures_are_listed_with_their_onsets(rate_hz: float) -> None:
    drawing = LidDrawing(rate_hz, noise_ear=0.003, closing_s=(0.3, 1.5), shut_s=(0.3, 10.0))
    drawn = draw_lids(3, drawing)
    found = found_of(drawn)
    closures = [(onset_s, offset_s) for kind, onset_s, offset_s in found if kind == "closure"]
    match = match_blinks(closures, drawn.closures, smallest_overlap=0.7)
    assert len(match.pairs) == match.found == match.true == 10
    for index, true in match.pairs:
        assert closures[index][0] == pytest.approx(drawn.closures[true][0], abs=0.15)
    blinks = [(onset_s, offset_s) for kind, onset_s, offset_s in found if kind == "blink"]
    assert match_blinks(blinks, drawn.blinks).f1 == 1.0


@pytest.mark.parametrize("blinks", [0, 20])
@pytest.mark.parametrize("rate_hz", [15.0, 60.0])
def test_looks_down_and_turns_of_the_head_are_no_events(rate_hz: float, blinks: int) -> None:
    drawn = draw_lids(5, LidDrawing(rate_hz, blinks, closures=0, glances=20, turns=15))
    spans = [(onset_s, offset_s) for _, onset_s, offset_s in found_of(drawn)]
    assert match_blinks(spans, drawn.blinks).f1 == 1.0 if blinks else spans == []


@pytest.mark.parametrize("rate_hz", [30.0, 60.0])
@pytest.mark.parametrize("blinks", [10, 20])
def test_who_squints_all_the_time_does_not_blink_all_the_time(rate_hz: float, blinks: int) -> None:
    drawing = LidDrawing(rate_hz, blinks, 0, squints=40, pause_s=(0.8, 3.0))
    right = found = true = 0
    for seed in range(4):
        drawn = draw_lids(seed, drawing)
        result = judge_blinks(drawn.trace)
        match = match_blinks([(b.onset_s, b.offset_s) for b in result.blinks], drawn.blinks)
        right, found, true = right + len(match.pairs), found + match.found, true + match.true
        doubts = doubts_of(drawn.trace, True, result.left_out, result.half_closings)
        assert any("came half way down" in doubt for doubt in doubts)
    assert right == true
    assert found - right <= 0.1 * true
