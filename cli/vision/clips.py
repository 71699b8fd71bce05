"""``poolctl evaluate`` and ``predict`` of saliency networks: where a person looks in clips."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cli.frame.errors import InputMissingError, UsageError
from cli.frame.existing_files import refuse_inputs, require_free
from cli.frame.output import Invocation, Reply, TableText
from cli.options.data import part_words
from site_agent.datasets.egocentric import GazeClip, is_egocentric, open_egocentric
from site_agent.datasets.gaze.records import sample_marks
from site_agent.datasets.soundness import require_sound
from site_agent.networks.files import read_network
from site_agent.plain_json import plain
from site_agent.tables import Table, columns_of
from site_agent.tasks.testing import lineages_of, warn_of_overlap
from site_agent.training.overlap import training_overlap
from site_agent.wording import count_words

if TYPE_CHECKING:
    from site_agent.evaluation.looks import LookedAt
    from site_agent.evaluation.saliency import SaliencyEvaluation

SCORE_COLUMNS = (
    "maps",
    "F1",
    "95 %",
    "recall",
    "precision",
    "AAE (deg)",
    "AUC",
    "GLC's F1",
    "GLC's AUC",
)


def evaluate_clips(
    invocation: Invocation,
    names: Sequence[str],
    datasets: Sequence[Path],
    persons: str,
    *,
    despite_findings: bool,
) -> Reply:
    """Answer ``evaluate`` on the test clips of a data set."""
    from site_agent.evaluation.saliency import evaluate_saliency
    from site_agent.networks.modules import to_module
    from site_agent.training.saliency import clip_shape

    if len(datasets) > 1:
        raise UsageError("expected one data set of clips")
    data = open_egocentric(datasets[0])
    chosen = part_words(persons)
    sound = require_sound(data, persons=chosen, despite_findings=despite_findings)
    items: list[dict[str, Any]] = []
    text: list[str | TableText] = []
    files = invocation.model_files(list(names))
    lineages = lineages_of(invocation, [file.path for file in files])
    for file, lineage in zip(files, lineages, strict=True):
        network = read_network(file.path)
        module = to_module(network, file.word)
        shape = clip_shape(network.metadata["architecture"])
        with invocation.progress(f"evaluate {file.word}") as report:
            samples = data.read(chosen, shape, progress=report)
            evaluation = evaluate_saliency(module, samples)
        marks = np.repeat(sample_marks(samples.of("test").frames), shape.frames).tolist()
        overlap = training_overlap(file.path, marks, "", lineage)
        items.append(
            {
                "model": file.word,
                "training_images": warn_of_overlap(invocation, file, overlap),
                "despite_findings": sound.despite,
                **scores_to_plain(evaluation),
            }
        )
        text += [
            f"{file.word}: {evaluation.verdict}",
            score_table(evaluation),
            TableText(
                ["person", "F1 of the network"],
                [[person, f"{score:.3f}"] for person, score in evaluation.by_person.items()],
            ),
        ]
    return Reply(
        {"datasets": list(datasets), "items": items},
        text,
        [f"{item['model']} f1={item['scores']['network']['f1']:.6g}" for item in items],
    )


def score_table(evaluation: "SaliencyEvaluation") -> TableText:
    """Return the scores of a network's maps and of the baseline maps."""
    from site_agent.evaluation.saliency import score_rows

    return TableText(SCORE_COLUMNS, score_rows(evaluation))


def scores_to_plain(evaluation: "SaliencyEvaluation") -> dict[str, Any]:
    """Return scores, intervals and persons as JSON has them."""
    return {
        "scores": {
            name: {
                **plain(score),
                "f1_interval": evaluation.intervals.get(name),
                "as_glc": plain(evaluation.as_glc[name]),
            }
            for name, score in evaluation.scores.items()
        },
        "f1_by_person": dict(evaluation.by_person),
    }


def predict_looks(
    invocation: Invocation,
    inputs: Sequence[str],
    file: Path,
    output: Path | None,
    pictures: Path | None,
    *,
    force: bool,
) -> Reply:
    """Answer ``predict`` with a saliency network, for videos or the test clips of a data set."""
    from site_agent.evaluation.looks import find_looks, write_overlay
    from site_agent.networks.modules import to_module
    from site_agent.training.saliency import clip_shape

    state = read_network(file)
    module = to_module(state, file.name)
    shape = clip_shape(state.metadata["architecture"])
    clips: dict[Path, GazeClip | None] = {}
    for word in inputs:
        path = Path(word)
        if not path.exists():
            raise InputMissingError(
                f"{word}: no such file; expected a video or a data set of clips"
            )
        if is_egocentric(path):
            clips |= {
                test.path: test for test in open_egocentric(path).clips if test.split == "test"
            }
        else:
            clips[path] = None
    targets = {path: None if pictures is None else pictures / f"{path.stem}.mp4" for path in clips}
    written = [path for path in targets.values() if path is not None]
    if len(set(written)) < len(written):
        raise UsageError("--pictures: two of the videos have the same name")
    for path in [*written, *([] if output is None else [output])]:
        refuse_inputs([path], [*clips, file], "--pictures and --output")
        require_free(path, force=force)
    if pictures is not None:
        pictures.mkdir(parents=True, exist_ok=True)
    items: list[dict[str, Any]] = []
    with invocation.progress("predict") as report:
        for number, (path, clip) in enumerate(clips.items()):

            def show(frames: int, index: int = number, path: Path = path) -> None:
                report(index / len(clips), f"{path.name}: {frames} frames")

            looks = find_looks(module, shape, path, show)
            target = targets[path]
            seen = looks if target is None else iter(write_overlay(looks, target, clip))
            items += [_item(path, look) for look in seen]
    text: list[str | TableText] = [
        f"looked at {count_words(len(items), 'frame')} of {count_words(len(clips), 'video')}"
    ]
    text += [f"video {path}" for path in written]
    if output is None and not written:
        text.append("give --pictures for videos with the maps drawn in, -o for a table")
    if output is not None:
        table = Table(output.stem, columns_of(items[0]))
        table.write_csv(output, ([item[name] for name in table.header] for item in items))
        text.append(f"table {output}")
    data = {"items": items, "output": output, "pictures": written}
    return Reply(data, text, [" ".join(map(str, item.values())) for item in items])


def _item(path: Path, look: "LookedAt") -> dict[str, Any]:
    x, y = look.peak
    return {
        "file": str(path),
        "frame": look.frame,
        "time_s": round(look.time_s, 6),
        "x": round(x, 4),
        "y": round(y, 4),
    }
