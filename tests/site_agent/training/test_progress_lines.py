"""Progress from the output of dlib."""

from hypothesis import given
from hypothesis import strategies as st

from site_agent.training.worker_process import HogSvmProgressReader, read_ert_progress, split_lines

PRINTED = (
    "Fitting trees...\n"
    "Progress: 400/600 (66.67%). Time remaining: 1min 5s.                \r"
    "Progress: 600/600 (100.00%). Time remaining: 0s.                \r"
    "Training complete                          \n"
)


def test_tree_progress_is_exact() -> None:
    steps = [step for line in split_lines([PRINTED]) if (step := read_ert_progress(line))]
    assert [step.fraction for step in steps] == [400 / 600, 1.0]
    assert steps[0].text == "tree 400 of 600, 1min 5s left"


@given(st.lists(st.integers(1, 30)))
def test_lines_do_not_depend_on_how_the_stream_is_cut(cuts: list[int]) -> None:
    pieces, rest = [], PRINTED
    for cut in cuts:
        pieces.append(rest[:cut])
        rest = rest[cut:]
    lines = list(split_lines([*pieces, rest]))
    assert lines == [line.strip() for line in PRINTED.replace("\r", "\n").split("\n") if line]


def iteration(gap: str, number: int) -> list[str]:
    return ["objective:     1.0", f"risk gap:      {gap}", f"iter:          {number}"]


def test_detector_progress_never_falls_and_ends_below_1() -> None:
    reader = HogSvmProgressReader(epsilon=0.01)
    gaps = ["60.5", "8.9", "24.6", "1.5", "0.1", "0.3", "0.02", "0.0097", "0.011", "0"]
    steps = []
    for number, gap in enumerate(gaps, 1):
        new_steps = [step for line in iteration(gap, number) if (step := reader.read(line))]
        assert len(new_steps) == 1
        steps += new_steps
    fractions = [step.fraction or 0.0 for step in steps]
    assert fractions == sorted(fractions)
    assert fractions[0] == 0
    assert 0.6 < fractions[4] < 0.8
    assert fractions[-1] == 0.99
    assert steps[3].text == "iteration 4, gap 1.5 of 0.01"
