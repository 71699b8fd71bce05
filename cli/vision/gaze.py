"""``poolctl evaluate`` of networks on gaze data."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from numpy.typing import NDArray

from cli.frame.errors import InputMissingError, UsageError
from cli.frame.existing_files import refuse_inputs, require_free
from cli.frame.options import Option
from cli.frame.output import Invocation, Reply, TableText
from cli.options.data import holds_gaze, part_words
from site_agent.datasets.gaze.check import open_gaze
from site_agent.datasets.gaze.records import (
    GazeSamples,
    join_samples,
    person_digests,
    select_sessions,
    target_errors,
)
from site_agent.evaluation.gaze import GazeScores, score_gaze
from site_agent.networks.architectures import find_architecture, require_kind
from site_agent.networks.files import read_network
from site_agent.networks.views import ANGLES, EYE, Target, View
from site_agent.tables import Table, columns_of
from site_agent.training.overlap import gaze_overlap
from site_agent.wording import count_words

if TYPE_CHECKING:
    from site_agent.evaluation.report import ScoredModel
    from site_agent.tasks.model_files import ModelFile


_SHOWN = (
    "median_error_deg",
    "best_person_error_deg",
    "worst_person_error_deg",
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
    samples = join_samples(parts)
    return select_sessions(samples, part_words(sessions)), person_digests(samples)


def warn_of_training_samples(
    invocation: Invocation,
    networks: "Sequence[ModelFile]",
    samples: GazeSamples,
    digests: dict[str, str],
    lineages: Sequence[Collection[str]],
) -> list[int]:
    """Return how many samples of a test each network has learned; warn of them and of persons."""
    counts = []
    for network, lineage in zip(networks, lineages, strict=True):
        overlap = gaze_overlap(network.path, samples, digests, lineage)
        if overlap is not None:
            invocation.warn(f"{network.word}: {overlap.words}")
        counts.append(0 if overlap is None else overlap.samples)
    return counts


def gaze_tables(models: "Sequence[ScoredModel]") -> list[TableText | str]:
    """Return a sentence on the best network, and the errors of all and of the mean gaze."""
    rows = []
    every = [scored.scores for scored in models if isinstance(scored.scores, GazeScores)]
    for model, scores in zip(models, every, strict=True):
        metrics = scores.metrics
        mean = f"{scores.mean_error_deg:.2f}"
        if scores.intervals:
            low, high = scores.intervals[scores.named("mean_error_deg")]
            mean += f" [{low:.2f}, {high:.2f}]"
        rows.append([model.name, mean, *(f"{metrics[scores.named(name)]:.2f}" for name in _SHOWN)])
    constant, count = every[0].constant_error_deg, len(every[0].persons)
    rows.append(["constant mean gaze", f"{constant:.2f}", "", "", "", "", ""])
    columns = ["network", "mean error", "median", "best", "worst", "range", "sd"]
    unit = every[0].target.unit
    title = f"{unit}, over {every[0].images} samples; best, worst, range and sd: of the means of "
    table = TableText(columns, rows, keep=("mean error", "worst"))
    error, name = min(
        (scores.mean_error_deg, scored.name) for scored, scores in zip(models, every, strict=True)
    )
    best = "" if len(every) == 1 else "Smallest error: "
    verdict = f"{best}{name} is off by {error:.1f} {unit}, the constant mean gaze by "
    return [f"{verdict}{constant:.1f}.", table, title + count_words(count, "person")]


def predict_gaze(
    invocation: Invocation, inputs: list[str], file: Path, output: Path | None, *, force: bool
) -> Reply:
    """Answer ``predict`` with a network of gaze, for gaze data."""
    from site_agent.networks.modules import predict_gaze as run
    from site_agent.networks.modules import to_module

    paths = [Path(word) for word in inputs]
    if missing := [path for path in paths if not path.exists()]:
        raise InputMissingError(f"{missing[0]}: no such file; expected gaze data")
    if output is not None:
        refuse_inputs([output], [*paths, file], "--output")
        require_free(output, force=force)
    network = read_network(file)
    module = to_module(network, file.name)
    require_kind(network.metadata["architecture"], "gaze", file.name)
    view = view_of([file])
    samples, _ = read_gaze_samples(invocation, paths, "", "", view)
    gaze = run(module, samples.patches, samples.head)
    items = _of_data(samples, gaze, view.target)
    text = _describe_result(samples, gaze, view.target)
    return predicted(items, text, output, [])


def predicted(
    items: list[dict[str, Any]],
    text: list[str | TableText],
    output: Path | None,
    pictures: list[Path],
) -> Reply:
    """Return the predictions of a network, and write their table to `output` if any."""
    if output is not None:
        table = Table(output.stem, columns_of(items[0]))
        table.write_csv(output, ([item[name] for name in table.header] for item in items))
        text.append(f"table {output}")
    data = {"items": items, "output": output, "pictures": pictures}
    return Reply(data, text, [" ".join(map(str, item.values())) for item in items])


def _of_data(
    samples: GazeSamples, gaze: NDArray[np.float64], target: Target
) -> list[dict[str, Any]]:
    """Return a line for each sample as the camera saw it."""
    errors = target_errors(target, gaze, samples.gaze)
    # Angles are in radians, as tables have them.
    scale, (across, down) = 1.0 if target is ANGLES else target.units_in_one, target.axes
    sides = [-1 if eye == "right" else 1 for eye in samples.eye]
    return [
        {
            "person": str(samples.person[i]),
            "session": str(samples.session[i]),
            "frame": int(samples.frame[i]),
            "eye": str(samples.eye[i]),
            across: round(side * scale * float(gaze[i, 0]), 6),
            down: round(scale * float(gaze[i, 1]), 6),
            target.named("error_deg"): round(float(errors[i]), 3),
        }
        for i, side in enumerate(sides)
    ]


def _describe_result(
    samples: GazeSamples, gaze: NDArray[np.float64], target: Target
) -> list[str | TableText]:
    scores = score_gaze(gaze, samples, target=target, resamples=0)
    rows = [
        [person.person, str(person.samples), f"{person.mean_error_deg:.2f}"]
        for person in scores.persons
    ]
    total = (
        f"{count_words(scores.images, 'sample')}, mean error {scores.mean_error_deg:.2f} "
        f"{target.unit}"
    )
    return [total, TableText(["person", "samples", "mean error"], rows)]
