"""Errors of the analysis that a reviewer meets, by the number of events looked at.

    python -m tests.benchmarks.blink_review [FOLDER]

FOLDER holds annotated traces (see `blinks_on_traces`); the likelihood is fitted without the
recording that is reviewed. Drawn sessions mix blinks, partial blinks, squints and rolled eyes. In
each recording the reviewer begins with the most doubtful event. *Before*, only counted blinks are
listed, least confidence, partial blinks and closures first, so that a missed blink is met by
watching the whole recording alone. *After*, the candidates that the analysis left out are listed,
too, and all come by the probability of an error. A decision is assumed to take 4 s.

The exit status is 1 where the reviewer meets fewer errors after than before.
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from site_agent.eyeblink.blinks import likelihood
from site_agent.eyeblink.blinks.finding import Blink, LeftOut, judge_blinks
from tests.benchmarks.blinks_on_traces import (
    MIXTURES,
    AnnotatedTrace,
    coefficients,
    leave_one_out,
    load_annotated_traces,
)
from tests.conftest import SHARED_DATA
from tests.site_agent.eyeblink.drawn_lids import draw_lids

LOOKED_AT = (5, 10, 20, 40)
DECISION_S = 4.0


@dataclass(frozen=True)
class Reviewed:
    """The events of one recording, which of them are errors, and the number of all errors."""

    counted: list[tuple[Blink, bool]]
    left_out: list[tuple[LeftOut, bool]]
    errors: int
    seconds: float

    def before(self) -> list[bool]:
        def doubt(item: tuple[Blink, bool]) -> float:
            partial, closure = item[0].completeness == "partial", item[0].kind == "closure"
            return 1.0 - item[0].confidence + 0.25 * partial + 0.1 * closure

        return [is_error for _, is_error in sorted(self.counted, key=doubt, reverse=True)]

    def after(self) -> list[bool]:
        doubts = [(1.0 - blink.confidence, is_error) for blink, is_error in self.counted]
        doubts += [(event.confidence, is_error) for event, is_error in self.left_out]
        return [is_error for _, is_error in sorted(doubts, reverse=True, key=lambda item: item[0])]


def review(recording: AnnotatedTrace, fitted: tuple[float, ...]) -> Reviewed:
    with coefficients(fitted):
        judged = judge_blinks(recording.trace)
    begin_s, end_s = recording.judged_s
    counted = [b for b in judged.blinks if b.offset_s > begin_s and b.onset_s < end_s]
    left_out = [e for e in judged.left_out if e.offset_s > begin_s and e.onset_s < end_s]
    match = recording.match([(b.onset_s, b.peak_s, b.offset_s) for b in counted])
    missed = replace(
        recording,
        # A moment that no event is near keeps the way of matching.
        points_s=recording.points_s and (*(recording.points_s[i] for i in match.missed), 1e9),
        intervals_s=recording.intervals_s and tuple(recording.intervals_s[i] for i in match.missed),
    )
    middles = [(e.onset_s, (e.onset_s + e.offset_s) / 2.0, e.offset_s) for e in left_out]
    met = {place for place, _ in missed.match(middles).pairs}
    return Reviewed(
        [(blink, place in match.spurious) for place, blink in enumerate(counted)],
        [(event, place in met) for place, event in enumerate(left_out)],
        len(match.spurious) + len(match.missed),
        recording.trace.duration_s,
    )


def show(title: str, recordings: Sequence[Reviewed]) -> bool:
    """Print the errors met before and after; return whether never fewer are met after."""
    hours = sum(recording.seconds for recording in recordings) / 3600.0
    print(f"{title}: {60 * hours:.0f} minutes, {sum(one.errors for one in recordings)} errors")
    ways: dict[str, Callable[[Reviewed], list[bool]]] = {
        "before": Reviewed.before,
        "after": Reviewed.after,
    }
    met, all_before = {}, 0
    for name, order in ways.items():
        lists = [order(recording) for recording in recordings]

        def met_in(most: int, lists: list[list[bool]] = lists) -> int:
            return sum(sum(errors[:most]) for errors in lists)

        longest = max(map(len, lists))
        met[name] = [met_in(most) for most in (*LOOKED_AT, longest)]
        all_before = all_before or met[name][-1]
        most = next(most for most in range(longest + 1) if met_in(most) >= all_before)
        decisions = sum(min(most, len(errors)) for errors in lists)
        first = ", ".join(
            f"{count} in the first {most}"
            for most, count in zip(LOOKED_AT, met[name], strict=False)
        )
        print(
            f"  {name:6s} {first}, {met[name][-1]} in all; the first {all_before} take "
            f"{decisions * DECISION_S / 60.0 / hours:.0f} minutes for an hour of video"
        )
    return all(a >= b for a, b in zip(met["after"], met["before"], strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, nargs="?", default=SHARED_DATA / "ear_traces")
    recordings = load_annotated_traces(parser.parse_args().folder)
    fitted = leave_one_out(recordings)
    passed = show("annotated", [review(one, fitted[one.name]) for one in recordings])
    drawn = []
    for seed in range(7000, 7003):
        for mixture in MIXTURES:
            for rate_hz in (30.0, 60.0):
                drawing = replace(mixture, frame_rate_hz=rate_hz, pause_s=(0.8, 3.0))
                lids = draw_lids(seed, drawing)
                trace = AnnotatedTrace("drawn", "", lids.trace, intervals_s=tuple(lids.blinks))
                drawn.append(review(trace, likelihood.BLINK_COEFFICIENTS))
    passed &= show("drawn mixtures", drawn)
    if not passed:
        raise SystemExit("the order lets the reviewer meet fewer errors")


if __name__ == "__main__":
    main()
