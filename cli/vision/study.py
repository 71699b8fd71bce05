"""``poolctl study``: compare models of several sites: alone, merged, refined, federated."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from cli.frame.errors import InputMissingError, UsageError, incomplete
from cli.frame.options import Argument, DespiteFindingsOption, DryRunOption, Option, command, single
from cli.frame.output import Invocation, Reply, TableText, markdown_parts
from cli.frame.settings_options import CommandSettings, SettingsOptions
from cli.options.data import GroupingOptions, ImagesOption, read_face_file, reading_from
from site_agent.datasets.records import FaceDataset
from site_agent.datasets.soundness import require_sound
from site_agent.studies.conducting import StudyOutcome, conduct_study, look_at_study
from site_agent.studies.engine import Conduct, StudyResults, hold_study
from site_agent.studies.model_study import StepOutcome
from site_agent.studies.outcome import table_data
from site_agent.studies.parts import StudyData, named_parts, split_into_parts
from site_agent.studies.protocol import Protocol as FaceProtocol
from site_agent.studies.protocol import StudySettings
from site_agent.studies.protocol_file import Protocol, Step, read_protocol, shipped
from site_agent.studies.table import StudyTable
from site_agent.training.detector_plan import HogSvmSettings
from site_agent.training.ert import ErtSettings
from site_agent.wording import first_lines

app = single()

_LEFT_OUT = ("seed", *(f"evaluation.{name}" for name in ("seed", "upsample", "threshold", "parts")))
_FACES: dict[str, CommandSettings[Any]] = {
    "landmarks": CommandSettings(StudySettings(ErtSettings()), _LEFT_OUT),
    "detectors": CommandSettings(
        StudySettings(HogSvmSettings()), (*_LEFT_OUT, "refinement", "evaluation.normaliser")
    ),
}
SETTINGS = _FACES | {name: CommandSettings(read_protocol(name).settings) for name in shipped()}


@dataclass(frozen=True)
class StudyOptions:
    """The folder of a study, and how its runs are done."""

    output: Annotated[Path, Option("Folder of the study.", "FOLDER")]
    dry_run: DryRunOption = False
    workers: Annotated[
        int, Option("Number of parallel runs; 0: as many as suit the machine.", min=0)
    ] = 0
    redo: Annotated[bool, Option("Repeat finished runs.")] = False
    despite_findings: DespiteFindingsOption = False


@dataclass(frozen=True)
class FaceStudyOptions(GroupingOptions):
    """The options of studies of landmark models and detectors."""

    test: Annotated[Path | None, Option("The test set for all models.", "FACES")] = None
    site_count: Annotated[
        int | None, Option("Number of parts of one data set. Default: 6.", min=2, max=50)
    ] = None
    dataset_name: Annotated[
        str, Option("Name of the data in the table. Default: that of FACES.", "NAME")
    ] = ""
    seed: Annotated[
        int, Option("Seed of the split, the orders, the starting shapes and the intervals.", min=0)
    ] = 0
    images: ImagesOption = None

    @property
    def divides(self) -> bool:
        """An option says how one data set is divided."""
        return self.site_count is not None or self.given or self.together != "image"


@command(
    app,
    "study",
    "study landmarks faces.xml --site-count 6 --test test.xml -o study/",
    "study landmarks siteA.xml siteB.xml --test test.xml -o study/ --set training.parts=eyes",
    "study detectors faces.xml --site-count 3 --together folder --test test.xml -o study/",
    "study gaze --drawn --quick -o study/",
    "study gaze eyes/ -o study/ --set folds=0 --set protocols=persons",
    "study gaze-tuning --drawn --quick -o tuning/",
    "study split MPIIGaze/ -o study/ --set folds=15",
    "study cross-encoder eyes/ -o study/ --set shots=10,100 --workers 2",
    "study privacy --drawn --quick -o study/",
    "study egocentric --drawn --quick --set methods=local,fedavg,fedcpf -o study/",
    "study mine.toml --set repeats=5 -o study/",
)
def study(
    invocation: Invocation,
    name: Annotated[str, Argument("The study: its name, or the file of its protocol.", "STUDY")],
    datasets: Annotated[
        list[Path] | None,
        Argument("FACES: one data set, or one for each part; or gaze data, or clips.", "[DATA...]"),
    ] = None,
    *,
    place: StudyOptions,
    faces: FaceStudyOptions,
    drawn: Annotated[bool, Option("Draw eyes or clips, instead of DATA.")] = False,
    quick: Annotated[bool, Option("A smaller study of networks, for two cores.")] = False,
    settings: SettingsOptions,
) -> Reply:
    """Compare models of several sites by the protocol of a paper.

    landmarks (table IV) and detectors (table II) need FACES and --test: they train models on each
    part, on growing unions and on all parts, and merge them by WBA or MWMA in growing numbers, in
    several orders, with weights, and with one part twice. Landmark models are also merged as a
    cascade that any program using dlib runs, refined in rounds, and thinned.

    gaze compares networks of each person alone, of all data in one place, and of federated methods,
    also with noisy images and hostile sites; gaze-paper trains as the paper says, and gaze-tuning
    compares candidates for settings. split compares split training with FedAvg, and attacks its
    smashed data. cross-encoder compares gaze heads from few labelled shots. privacy attacks the
    leaks of federated training. egocentric asks whether a network of one's own helps each wearer
    of a camera. In these, each person of DATA, or drawn person, is a site. FILE.toml is a study of
    your own: its settings, steps (functions or commands), tables, verdicts and figures.

    FOLDER gets the table (table.md, with the verdict first, .csv), pictures, the result of each run
    or every model with its recipe, and study.json (digests, settings, seeds, versions, how to
    repeat it). 'poolctl settings study NAME' explains all settings. After an interruption, run the
    same command again to continue. If a run fails, the others continue.
    """
    if name in _FACES:
        if drawn or quick:
            raise UsageError(f"--drawn and --quick are not for study {name}, which needs FACES")
        return _study_faces(
            invocation, name, datasets or [], place, options=faces, settings=settings
        )
    if faces != FaceStudyOptions():
        raise UsageError(
            f"study {name} takes no --test, --site-count, --together, --person-pattern, --persons, "
            "--dataset-name, --seed or --images"
        )
    protocol = read_protocol(name)
    if protocol.data is None and (datasets or drawn):
        raise UsageError(f"study {name} takes no data")
    if protocol.data is not None and len(datasets or []) != (not drawn):
        raise UsageError("give one data set, or --drawn without any")
    dataset = datasets[0] if datasets else None
    return _hold(invocation, protocol, dataset, place, settings, quick=quick)


@contextmanager
def _kept_when_interrupted(invocation: Invocation, what: str) -> Iterator[None]:
    """Say after Ctrl-C that finished `what` are kept."""
    try:
        yield
    except KeyboardInterrupt:
        invocation.note(f"Finished {what} are kept; run the same command again to continue.")
        raise


def _hold(
    invocation: Invocation,
    protocol: Protocol,
    path: Path | None,
    place: StudyOptions,
    options: SettingsOptions,
    *,
    quick: bool,
) -> Reply:
    base = protocol.quick if quick else protocol.settings
    known = CommandSettings(protocol.settings)
    chosen = known.read(options, base)
    dataset = None
    if path is not None:
        if not path.exists():
            raise InputMissingError(f"{path}: no such file; expected the data of the study")
        dataset = protocol.data.open_data(path)
        require_sound(dataset, despite_findings=place.despite_findings)
    if place.dry_run:
        return _plan_reply(protocol.steps(dataset, chosen), chosen)
    # The command that does the same in another folder.
    repeat = ["poolctl", "study", protocol.source]
    if protocol.data is not None:
        repeat.append(str(path.absolute()) if path else "--drawn")
    repeat += [*["--quick"] * quick, "-o", "again/", *known.repeated(chosen, base)]
    with (
        _kept_when_interrupted(invocation, "runs"),
        invocation.progress(f"study {place.output.name}") as progress,
    ):
        conduct = Conduct(progress, place.workers, place.redo, repeat, _note_run(invocation))
        results = hold_study(protocol, place.output, dataset, chosen, conduct)
    return _reply_of_protocol(results, place.output)


def _plan_reply(steps: Sequence[Step], settings: Any) -> Reply:
    columns = list(dict.fromkeys(name for step in steps for name in step.factors))
    rows = [[step.name, *(str(step.factors.get(name, "")) for name in columns)] for step in steps]
    runs = [{"key": step.key, "step": step.name, **step.factors} for step in steps]
    text: list[str | TableText] = [f"would do {len(steps)} runs"]
    text.append(TableText(["step", *columns], rows))
    return Reply({"runs": runs, "settings": settings}, text, [step.key for step in steps])


def _note_run(invocation: Invocation) -> Callable[[str, float], None]:
    return lambda key, took_s: invocation.note(f"{key}  ({took_s:.1f} s)")


def _reply_of_protocol(results: StudyResults, folder: Path) -> Reply:
    """Return the tables of a study, which are in its first file, and the files written."""
    if results.failed:
        lines = first_lines([f"{key}: {reason}" for key, reason in results.failed.items()])
        total = len(results.failed) + len(results.results)
        failed = (
            f"{len(results.failed)} of {total} runs failed; the others are finished and listed in"
        )
        raise incomplete("study", f"{failed} {results.files[0]}", lines)
    tables = results.files[0].read_text(encoding="utf-8").split("\nTo repeat it")[0]
    text = [*markdown_parts(tables), *(f"written {path}" for path in results.files)]
    counts = {"done": len(results.results) - results.kept, "kept": results.kept}
    shown = {
        "folder": folder, "runs": counts, "findings": results.findings,
        "results": results.results, "files": results.files,
    }  # fmt: skip
    return Reply(shown, text, [str(folder)])


# Studies of faces.
def _study_faces(
    invocation: Invocation,
    name: str,
    files: Sequence[Path],
    place: StudyOptions,
    *,
    options: FaceStudyOptions,
    settings: SettingsOptions,
) -> Reply:
    if not files or options.test is None:
        raise UsageError(f"expected FACES and --test, as in: study {name} faces.xml --test t.xml")
    seed, test = options.seed, options.test
    chosen = _FACES[name].read(settings)
    seeded = replace(chosen, seed=seed, evaluation=replace(chosen.evaluation, seed=seed))
    reading = reading_from(options.images)
    parts = _parts([read_face_file(file, reading) for file in files], options)
    data_name = options.dataset_name or files[0].stem
    arguments = (place.output, data_name, parts, read_face_file(test, reading), seeded)
    if place.dry_run:
        plan = look_at_study(
            *arguments, test_reading=reading, despite_findings=place.despite_findings
        )
        return _plan(plan.data, plan.protocol)
    # The command that does the same from the parts in the study's folder.
    repeat = ["poolctl", "study", name, *(f"parts/P{n + 1}.xml" for n in range(len(parts)))]
    repeat += ["--test", str(test.absolute()), "--dataset-name", data_name, "-o", "again/"]
    repeat += [] if options.images is None else ["--images", str(options.images.absolute())]
    repeat += ["--despite-findings"] * place.despite_findings
    repeat += ["--seed", str(seed), *_FACES[name].repeated(chosen)]
    with (
        _kept_when_interrupted(invocation, "steps"),
        invocation.progress(f"study {place.output.name}") as report,
    ):
        conducted = conduct_study(
            *arguments,
            test_reading=reading,
            despite_findings=place.despite_findings,
            repeat=repeat,
            workers=place.workers,
            redo=place.redo,
            on_outcome=lambda outcome: _note_outcome(invocation, outcome),
            progress=report,
        )
    for leftover in conducted.leftovers:
        invocation.note(f"left from an earlier study: {place.output / leftover}")
    _check_complete(conducted)
    return _reply(conducted)


def _parts(datasets: list[FaceDataset], options: FaceStudyOptions) -> dict[str, FaceDataset]:
    """Return the parts by name: split, or as they were given."""
    if len(datasets) > 1:
        if options.divides:
            raise UsageError(
                f"{len(datasets)} data sets are the parts: --site-count, --together, "
                "--person-pattern and --persons are for one data set that is split"
            )
        return named_parts(datasets)
    group_of = options.group_of(datasets[0])
    return split_into_parts(
        datasets[0], options.site_count or 6, group_of=group_of, seed=options.seed
    )


def _plan(data: StudyData, protocol: FaceProtocol) -> Reply:
    rows = [[row.name, row.group] for row in protocol.rows]
    sizes = [[part.name, str(part.images), str(part.faces)] for part in (*data.parts, data.test)]
    plan = {"parts": data.parts, "test": data.test, "rows": protocol.rows}
    summary = f"would make and score {len(rows)} models in {len(protocol.steps)} steps"
    tables = [TableText(["part", "pictures", "faces"], sizes), TableText(["model", "group"], rows)]
    return Reply(plan, [summary, *tables, *data.remarks], [row.name for row in protocol.rows])


def _note_outcome(invocation: Invocation, outcome: StepOutcome) -> None:
    if outcome.state == "failed":
        invocation.note(f"{outcome.title}  failed: {outcome.reason}")
    elif outcome.record is not None:
        invocation.note(f"{outcome.title}  ({outcome.record.took_s:.1f} s)")


def _check_complete(conducted: StudyOutcome) -> None:
    failed = conducted.run.failed
    if not failed:
        return
    lines = first_lines([f"{outcome.title}: {outcome.reason}" for outcome in failed])
    lost = conducted.run.count("left out")
    besides = f", and {lost} that need their results" if lost else ""
    text = (
        f"{len(failed)} of {len(conducted.run.outcomes)} steps failed{besides}; the others are "
        f"finished and listed in {conducted.files[0]}"
    )
    raise incomplete("study", text, lines)


def _reply(conducted: StudyOutcome) -> Reply:
    run, table = conducted.run, conducted.table
    data = {
        **table_data(run, table),
        "folder": run.folder.path,
        "workers": run.workers,
        "steps": {"done": run.count("done"), "kept": run.count("kept")},
        "files": conducted.files,
    }
    verdict, *others = table.remarks
    text: list[str | TableText] = [verdict, _table_text(table), *others]
    text += [f"written {path}" for path in conducted.files]
    return Reply(data, text, [str(run.folder.path)])


def _table_text(table: StudyTable) -> TableText:
    best = table.best_alone()
    rows = []
    for line in table.lines:
        compared = table.against(line, best)
        cells = [f"{line.value(name):.4f}" for name in table.headline]
        against = "" if math.isnan(compared) else f"{compared:+.1f} %"
        size = f"{line.size_bytes / 1e6:.2f}"
        rows.append([f"{table.name}-{line.row.name}", *cells, against, size])
    names = [name.replace("_", " ") for name in table.headline]
    return TableText(["dataset", *names, "against best alone", "MB"], rows)
