"""Detected against annotated blinks, counted as in the field."""

from collections.abc import Sequence
from dataclasses import dataclass

Interval = tuple[float, float]


@dataclass(frozen=True)
class BlinkMatch:
    """Pairs of detected and true blinks, and the number of each."""

    pairs: tuple[tuple[int, int], ...]
    detected: int
    true: int

    @property
    def precision(self) -> float:
        return len(self.pairs) / self.detected if self.detected else float("nan")

    @property
    def recall(self) -> float:
        return len(self.pairs) / self.true if self.true else float("nan")

    @property
    def f1(self) -> float:
        total = self.detected + self.true
        return 2.0 * len(self.pairs) / total if total else float("nan")

    @property
    def missed(self) -> tuple[int, ...]:
        """Indices of the true blinks that were not found."""
        paired = {true for _, true in self.pairs}
        return tuple(index for index in range(self.true) if index not in paired)

    @property
    def spurious(self) -> tuple[int, ...]:
        """Indices of the detected blinks without a true one."""
        paired = {detected for detected, _ in self.pairs}
        return tuple(index for index in range(self.detected) if index not in paired)


def match_blinks(
    detected: Sequence[Interval], true: Sequence[Interval], *, smallest_overlap: float = 0.2
) -> BlinkMatch:
    """Pair intervals (onset, offset) in seconds with a larger intersection over union.

    The pairs of largest overlap are made first; each interval is used once.
    """
    scores = []
    for i, (onset, offset) in enumerate(detected):
        for j, (true_onset, true_offset) in enumerate(true):
            shared = min(offset, true_offset) - max(onset, true_onset)
            if shared <= 0:
                continue
            overlap = shared / (max(offset, true_offset) - min(onset, true_onset))
            if overlap > smallest_overlap:
                scores.append((-overlap, i, j))
    return _one_to_one(scores, len(detected), len(true))


def match_blinks_to_points(
    detected: Sequence[Interval], points: Sequence[float], *, tolerance: float
) -> BlinkMatch:
    """Pair intervals with annotated moments that lie in them or within `tolerance` of them.

    Interval and moment may be in seconds or in frames. The nearest pairs are made first; an
    interval of length 0 is a moment itself.
    """
    scores = []
    for i, (onset, offset) in enumerate(detected):
        for j, point in enumerate(points):
            outside = max(onset - point, point - offset, 0.0)
            if outside <= tolerance:
                scores.append((outside + 1e-3 * abs(point - onset), i, j))
    return _one_to_one(scores, len(detected), len(points))


def _one_to_one(scores: list[tuple[float, int, int]], detected: int, true: int) -> BlinkMatch:
    used_found: set[int] = set()
    used_true: set[int] = set()
    pairs = []
    for _, i, j in sorted(scores):
        if i not in used_found and j not in used_true:
            used_found.add(i)
            used_true.add(j)
            pairs.append((i, j))
    return BlinkMatch(tuple(sorted(pairs)), detected, true)
