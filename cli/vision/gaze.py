"""``poolctl evaluate`` of networks on gaze data."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cli.frame.errors import UsageError
from cli.frame.options import Option
from cli.frame.output import Invocation, TableText
from cli.options.data import holds_gaze, part_words
from site_agent.datasets.gaze.check import open_gaze
from site_agent.datasets.gaze.records import GazeSamples, person_digests, select_sessions
from site_agent.evaluation.gaze import GazeScores
from site_agent.networks.architectures import find_architecture, require_kind
from site_agent.networks.files import read_network
from site_agent.networks.views import EYE, View
from site_agent.wording import count_words

if TYPE_CHECKING:
    from site_agent.evaluation.report import ScoredModel


_SHOWN = (
    "worst_person_error_deg",
    "median_error_deg",
    "best_person_error_deg",
    "person_range_deg",
    "person_sd_deg",
)

PersonsOption = Annotated[str, Option("Gaze data: only these persons.", "A,B,...")]
SessionsOption = Annotated[
    str,
    Option("Gaze data: only these sessions; held-out: those of 'train network gaze'.", "A,B,..."),
]


def view_of(networks: Sequence[Path]) -> View:
    """Return the view that gaze networks take; raise `UsageError` if they differ in it."""
    views = {}
    for path in networks:
        name = read_network(path).metadata.get("architecture", "no architecture")
        require_kind(name, "gaze", str(path))
        views[find_architecture(name).view] = path
    if len(views) > 1:
        told = "; ".join(f"{path} takes {view.description}" for view, path in views.items())
        raise UsageError(f"expected networks of one view, found several: {told}")
    return next(iter(views))


def read_gaze_samples(
    invocation: Invocation, paths: Sequence[Path], persons: str, sessions: str, view: View = EYE
) -> tuple[GazeSamples, dict[str, str]]:
    """Return the samples that were asked for, and the digest of each person's whole data."""
    if not holds_gaze(list(paths)) or len(paths) > 1:
        raise UsageError("expected one set of gaze data")
    dataset = open_gaze(paths[0]).seen_as(view)
    names = part_words(persons) or dataset.persons
    parts = []
    with invocation.progress("read patches") as report:
        for number, person in enumerate(names):
            report(number / len(names), f"person {person}")
            parts.append(dataset.read([person]))
    samples = GazeSamples.join(parts)
    return select_sessions(samples, part_words(sessions)), person_digests(samples)


def gaze_tables(models: "Sequence[ScoredModel]") -> list[TableText | str]:
    """Return a sentence on the best network, and the errors of all and of the mean gaze."""
    rows = []
    every = [scored.scores for scored in models if isinstance(scored.scores, GazeScores)]
    for model, scores in zip(models, every, strict=True):
        metrics = scores.metrics
        mean = f"{scores.mean_error_deg:.2f}"
        if ends := scores.intervals.get(scores.named("mean_error_deg")):
            mean += f" [{ends[0]:.2f}, {ends[1]:.2f}]"
        rows.append([model.name, mean, *(f"{metrics[scores.named(name)]:.2f}" for name in _SHOWN)])
    constant, count = every[0].constant_error_deg, len(every[0].persons)
    rows.append(["constant mean gaze", f"{constant:.2f}", "", "", "", "", ""])
    columns = ["network", "mean error", "worst", "median", "best", "range", "sd"]
    unit = every[0].target.unit
    title = f"{unit}, over {every[0].images} samples; best, worst, range and sd: of the means of "
    table = TableText(columns, rows)
    error, name = min(
        (scores.mean_error_deg, scored.name) for scored, scores in zip(models, every, strict=True)
    )
    best = "" if len(every) == 1 else "Smallest error: "
    verdict = f"{best}{name} is off by {error:.1f} {unit}, the constant mean gaze by "
    return [f"{verdict}{constant:.1f}.", table, title + count_words(count, "person")]
