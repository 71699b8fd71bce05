"""``poolctl evaluate``: score models on annotated images, eye crops or gaze data."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from aggregators.formats import NETWORK_FORMATS, recognise
from cli.frame.errors import UsageError
from cli.frame.options import (
    Argument,
    DespiteFindingsOption,
    Option,
    ProcessesOption,
    command,
    single,
)
from cli.frame.output import Invocation, Reply, TableText
from cli.frame.settings_options import CommandSettings, SettingsOptions
from cli.options.data import ImagesOption, part_words, read_joined_faces, reading_from, words_of
from cli.vision import clips, gaze
from pool_server.wire.evaluations import EvaluationResponse
from site_agent.datasets.egocentric import is_egocentric
from site_agent.datasets.gaze.check import is_gaze_data, open_gaze
from site_agent.datasets.gaze.records import join_digests, person_digests
from site_agent.datasets.soundness import require_sound
from site_agent.errors import NotFoundError
from site_agent.evaluation.detection import DetectionScores
from site_agent.evaluation.gaze import GazeScores, evaluate_networks
from site_agent.evaluation.landmark_scores import LandmarkScores
from site_agent.evaluation.model_runs import EvaluationSettings
from site_agent.evaluation.report import ScoredModel, write_report
from site_agent.pool.resources.models import DatasetWords
from site_agent.tasks.model_files import ModelFile
from site_agent.tasks.testing import (
    Scored,
    lineages_of,
    score_on_faces,
    scored_models,
    verdicts,
    warn_of_overlap,
)
from site_agent.training.overlap import gaze_overlap

if TYPE_CHECKING:
    Scores = DetectionScores | LandmarkScores | GazeScores

app = single()

_WITH_INTERVAL = {"recall", "precision", "mean_error"}
_FIRST_IN_TABLE = {*_WITH_INTERVAL, "ear_range"}
_NOT_IN_TABLE = {"median_error", "failure_rate_at_10", "auc"}
_SHORT_NAMES = {
    "failure_rate": "failures",
    "ear_error": "EAR error",
    "closed_ear_error": "closed",
    "ear_range": "EAR range",
}


EVALUATION_SETTINGS = CommandSettings(EvaluationSettings(), ("parts",))


@dataclass(frozen=True)
class ReportOptions:
    """The options of files with the scores."""

    output: Annotated[
        Path | None, Option("Write JSON, CSV and plots to this folder.", "FOLDER")
    ] = None
    long: Annotated[bool, Option("With --json and --output: also list each image or face.")] = False
    save: Annotated[
        bool, Option("Save the scores next to the model; 'poolctl upload' sends them.")
    ] = False

    def write(self, scored: Scored, datasets: Sequence[Path]) -> list[Path]:
        """Write the report."""
        if self.output is None:
            return []
        return write_report(
            self.output,
            scored.models,
            dataset_name=words_of([Path(path.name) for path in datasets]),
            dataset_digest=scored.measured,
            per_image=self.long,
        )


@dataclass(frozen=True)
class PostOptions:
    """The options of sending scores to the pool."""

    post: Annotated[bool, Option("Send the scores (never the data) to the pool.")] = False
    dataset_name: Annotated[
        str, Option("With --post: a name for your data. Default: from its digest.", "NAME")
    ] = ""
    split: Annotated[
        str, Option("With --post: the part of the data, for example test.", "NAME")
    ] = ""

    def check(self, invocation: Invocation) -> None:
        """Check name and log-in before hours of work."""
        if not self.post:
            return
        DatasetWords("", self.dataset_name, self.split)
        with invocation.pool() as pool:
            pool.whoami()

    def send(self, invocation: Invocation, scored: Scored) -> list[EvaluationResponse]:
        """Send the scores of those models that the pool has; name the others."""
        if not self.post:
            return []
        if any(scored.trained_on):
            raise UsageError(
                "a model learned from pictures of this test, so no score is posted; test on others"
            )
        findings = f"{self.split}-despite-findings".removeprefix("-")
        split = findings if scored.despite else self.split
        dataset = DatasetWords(scored.measured, self.dataset_name, split)
        posted = []
        unknown: NotFoundError | None = None
        with invocation.pool() as pool:
            for model in scored.models:
                try:
                    posted.append(
                        pool.evaluations.post(f"sha256:{model.digest}", model.scores, dataset)
                    )
                except NotFoundError as error:
                    invocation.warn(f"{model.name}: not posted: {error}")
                    unknown = error
        if unknown is not None and not posted:
            raise unknown
        return posted


@command(
    app,
    "evaluate",
    "evaluate merged.dat test.xml",
    "evaluate siteA.svm siteB.svm merged.svm test.xml -o scores/",
    "evaluate site-a/face-68 mine.dat test.xml --set normaliser=box --save",
    "evaluate whole.dat eyes.dat test.xml --parts eyes",
    "evaluate site-a/face-68 site-b/face-68@2 test.xml --post --dataset-name ward-2026",
    "evaluate gaze.safetensors eyes/ --sessions held-out -o scores/",
    "evaluate look.safetensors clips/",
)
def evaluate(
    invocation: Invocation,
    arguments: Annotated[
        list[str],
        Argument(
            "Models (files or addresses), then annotations (imglab XML, COCO JSON, or a "
            "folder of .pts files; several are used as one data set), gaze data or clips.",
            "MODEL... DATA...",
        ),
    ],
    *,
    report: ReportOptions,
    parts: Annotated[
        str,
        Option(
            "Landmarks to compare: eyes, 36-47, or names. Default: all of the model.", "A,B,..."
        ),
    ] = "",
    workers: ProcessesOption = 0,
    posting: PostOptions,
    despite_findings: DespiteFindingsOption = False,
    images: ImagesOption = None,
    persons: gaze.PersonsOption = "",
    sessions: gaze.SessionsOption = "",
    changes: SettingsOptions,
) -> Reply:
    """Score detectors and landmark models on annotated images, networks on gaze data or clips.

    Detectors: recall, precision, average precision. Landmark models: mean error relative to the
    eye distance, share of faces with an error above 0.08 (failures), the errors of the eyes and of
    the eye aspect ratio (also of closed eyes), and the EAR range: 1 if the landmarks follow the
    lids from open to closed, 0.5 if half the way. It predicts best how many blinks a model finds.
    --json and --output add the median error, the share above 0.10 and the area under the error
    curve (to 0.08). Brackets are 95 % intervals from resampling images. A model of some of the 68
    landmarks is recognised by its mean shape or its training record; otherwise give --parts. A
    warning names models that were trained on the test images. Networks: angular errors in degrees,
    of all samples and of persons, compared with the mean gaze; intervals from resampling persons.
    Of clips: F1 of coverage on test clips, compared with maps that know no picture.
    With --post the scores are sent to the pool, with the data's digest and name; images and their
    file names are not. 'poolctl settings evaluate' explains all settings.
    """
    if not posting.post and (posting.dataset_name or posting.split):
        raise UsageError("--dataset-name and --split go with --post")
    names, datasets = _models_and_data(arguments)
    settings = EVALUATION_SETTINGS.read(changes, EvaluationSettings(parts=part_words(parts)))
    of_clips = any(is_egocentric(path) for path in datasets)
    on_gaze = not of_clips and any(is_gaze_data(path) for path in datasets)
    if of_clips or on_gaze:
        _refuse_face_options(settings, per_image=report.long)
    if of_clips:
        if posting.post or report != ReportOptions() or sessions:
            raise UsageError("--post, --save, --output, --sessions: not for clips")
        return clips.evaluate_clips(
            invocation, names, datasets, persons, despite_findings=despite_findings
        )
    if on_gaze:
        scored = _score_on_gaze(
            invocation,
            names,
            datasets,
            (persons, sessions),
            settings=settings,
            posting=posting,
            despite_findings=despite_findings,
        )
        text = gaze.gaze_tables(scored.models)
    else:
        if persons or sessions:
            raise UsageError("--persons and --sessions go with gaze data")
        dataset = read_joined_faces(datasets, reading_from(images), same_parts=True)
        files = _files(invocation, names, posting)
        scored = score_on_faces(
            invocation, files, dataset, settings, workers, despite_findings=despite_findings
        )
        text = [*verdicts(scored.models), *score_tables(scored.models)]
    if report.save:
        scored.keep(invocation)
    written = report.write(scored, datasets)
    return _reply(
        scored, datasets, text, written, posting.send(invocation, scored), per_image=report.long
    )


def _reply(
    scored: Scored,
    datasets: Sequence[Path],
    text: Sequence[str | TableText],
    written: Sequence[Path],
    posted: Sequence[EvaluationResponse],
    *,
    per_image: bool,
) -> Reply:
    items = [
        {
            "model": model.name,
            "digest": model.digest,
            "training_images": count,
            "despite_findings": scored.despite,
            **model.scores.to_dict(per_image=per_image),
        }
        for model, count in zip(scored.models, scored.trained_on, strict=True)
    ]
    metrics = [
        f"{model.name} "
        + " ".join(f"{name}={value:.6g}" for name, value in model.scores.metrics.items())
        for model in scored.models
    ]
    data = {
        "datasets": datasets,
        "dataset_digest": scored.measured,
        "items": items,
        "files": written,
        "posted": posted,
    }
    lines = [f"written {path}" for path in written]
    lines += [
        f"posted as evaluation {evaluation.evaluation_id} by {evaluation.site}"
        for evaluation in posted
    ]
    return Reply(data, [*text, *lines], metrics)


def _files(
    invocation: Invocation, names: Sequence[str], posting: PostOptions, *, networks: bool = False
) -> list[ModelFile]:
    files = invocation.model_files(names)
    for file in files:
        if (recognise(file.path).name in NETWORK_FORMATS) != networks:
            what = "only networks can" if networks else "networks cannot"
            raise UsageError(
                f"{file.word}: {what} be evaluated on {'gaze data' if networks else 'faces'}"
            )
    posting.check(invocation)
    return files


def _models_and_data(arguments: Sequence[str]) -> tuple[list[str], list[Path]]:
    """Split the words: the last ones that can be annotations are."""
    first = len(arguments) - 1
    while first > 1 and _can_be_data(arguments[first - 1]):
        first -= 1
    if first < 1:
        raise UsageError("expected MODEL... DATA, for example: merged.dat test.xml")
    return list(arguments[:first]), [Path(word) for word in arguments[first:]]


def _can_be_data(word: str) -> bool:
    return Path(word).is_dir() or Path(word).suffix.lower() in {".xml", ".json", ".pts", ".csv"}


def _score_on_gaze(
    invocation: Invocation,
    names: Sequence[str],
    datasets: Sequence[Path],
    choice: tuple[str, str],
    *,
    settings: EvaluationSettings,
    posting: PostOptions,
    despite_findings: bool,
) -> Scored:
    files = _files(invocation, names, posting, networks=True)
    paths = [file.path for file in files]
    view = gaze.view_of(paths)
    samples, digests = gaze.read_gaze_samples(invocation, datasets, *choice, view)
    sound = require_sound(
        open_gaze(datasets[0]), persons=digests, despite_findings=despite_findings
    )
    with invocation.progress("evaluate") as report:
        scores = evaluate_networks(paths, samples, resamples=settings.resamples, progress=report)
    lineages = lineages_of(invocation, paths)
    trained_on = [
        warn_of_overlap(invocation, file, gaze_overlap(file.path, samples, digests, lineage))
        for file, lineage in zip(files, lineages, strict=True)
    ]
    measured = join_digests(person_digests(samples))
    return Scored(files, scored_models(files, scores), measured, trained_on, sound.despite)


def _refuse_face_options(settings: EvaluationSettings, *, per_image: bool) -> None:
    faces = (settings.upsample, settings.threshold, settings.normaliser, settings.parts)
    if any(value not in (None, 0.0, ()) for value in faces) or per_image:
        raise UsageError("upsample, threshold, normaliser, --parts, --long: for faces")


def score_tables(models: Sequence[ScoredModel]) -> list[TableText]:
    """Return one table for detectors and one for landmark models, within 100 columns."""
    by_columns: dict[tuple[str, ...], list[list[str]]] = {}
    for model in models:
        shown = [name for name in model.scores.metrics if name not in _NOT_IN_TABLE]
        shown.sort(key=lambda name: name not in _FIRST_IN_TABLE)
        metrics = {name: model.scores.metrics[name] for name in shown}
        cells = [
            _cell(value, model.scores.intervals.get(name) if name in _WITH_INTERVAL else None)
            for name, value in metrics.items()
        ]
        row = [model.name, *cells, f"{model.scores.faces} in {model.scores.images}"]
        by_columns.setdefault(tuple(metrics), []).append(row)
    return [
        TableText(
            ["model", *[_SHORT_NAMES.get(name, name.replace("_", " ")) for name in names], "faces"],
            rows,
        )
        for names, rows in by_columns.items()
    ]


def _cell(value: float, interval: Any) -> str:
    if interval is None:
        return f"{value:.4f}"
    low, high = interval
    return f"{value:.4f} [{low:.4f}, {high:.4f}]"
