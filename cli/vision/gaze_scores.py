"""``poolctl evaluate`` of networks on gaze data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.frame.errors import UsageError
from cli.frame.output import Invocation, TableText
from cli.frame.quantities import count_words
from cli.options.data import holds_gaze, part_words

if TYPE_CHECKING:
    from site_agent.datasets.gaze import GazeSamples
    from site_agent.evaluation import ScoredModel

_SHOWN = (
    "median_error_deg",
    "best_person_error_deg",
    "worst_person_error_deg",
    "person_range_deg",
    "person_sd_deg",
)

PersonsOption = Annotated[
    str,
    typer.Option(metavar="A,B,...", help="Gaze data: only these persons."),
]
SessionsOption = Annotated[
    str,
    typer.Option(
        metavar="A,B,...",
        help="Gaze data: only these sessions; held-out: those that 'poolctl train gaze' holds out.",
    ),
]


def read_gaze_samples(
    invocation: Invocation, paths: Sequence[Path], persons: str, sessions: str
) -> tuple[GazeSamples, dict[str, str]]:
    """Return the samples that were asked for, and the digest of each person's whole data."""
    from site_agent.datasets.gaze import join_samples, open_gaze, person_digests, select_sessions

    if not holds_gaze(list(paths)) or len(paths) > 1:
        raise UsageError("expected one set of gaze data")
    dataset = open_gaze(paths[0])
    names = part_words(persons) or dataset.persons
    parts = []
    with invocation.progress("read patches") as report:
        for done, person in enumerate(names):
            report(done / len(names), f"person {person}")
            parts.append(dataset.read([person]))
    samples = join_samples(parts)
    return select_sessions(samples, part_words(sessions)), person_digests(samples)


def warn_of_training_samples(
    invocation: Invocation,
    networks: Sequence[Path],
    samples: GazeSamples,
    digests: dict[str, str],
) -> list[int]:
    """Return how many samples of a test each network has learned; warn of them and of persons."""
    from site_agent.training.overlap import gaze_overlap

    counts = []
    for network in networks:
        overlap = gaze_overlap(network, samples, digests)
        if overlap is not None:
            invocation.warn(f"{network}: {overlap.words}")
        counts.append(0 if overlap is None else overlap.samples)
    return counts


def gaze_tables(models: Sequence[ScoredModel]) -> list[TableText | str]:
    """Return the errors of all networks, within 100 columns, and of the constant mean gaze."""
    from site_agent.evaluation import GazeScores

    rows = []
    every = [each.scores for each in models if isinstance(each.scores, GazeScores)]
    for model, scores in zip(models, every, strict=True):
        found = scores.metrics
        mean = f"{scores.mean_error_deg:.2f}"
        if "mean_error_deg" in scores.intervals:
            low, high = scores.intervals["mean_error_deg"]
            mean += f" [{low:.2f}, {high:.2f}]"
        rows.append([model.name, mean, *(f"{found[name]:.2f}" for name in _SHOWN)])
    constant, count = every[0].constant_error_deg, len(every[0].persons)
    rows.append(["constant mean gaze", f"{constant:.2f}", "", "", "", "", ""])
    columns = ["network", "mean error", "median", "best", "worst", "range", "sd"]
    words = f"degrees, over {every[0].images} samples; best, worst, range and sd: of the means of "
    table = TableText(columns, rows, shortened="network")
    return [table, words + count_words(count, "person")]
