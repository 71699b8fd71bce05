"""``poolctl study``: compare models of several sites: alone, merged, refined, federated."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cli.frame.errors import InputMissingError, UsageError, incomplete
from cli.frame.options import Argument, DespiteFindingsOption, DryRunOption, Option, command, single
from cli.frame.output import Invocation, Reply, TableText, markdown_parts
from cli.frame.settings_options import CommandSettings, SettingsOptions
from cli.options.engine import EngineOptions, reply_of_share
from site_agent.studies.engine import Conduct, StudyResults, hold_study
from site_agent.studies.protocol_file import Protocol, Step, read_protocol, shipped
from site_agent.wording import first_lines

app = single()

SETTINGS = {name: CommandSettings(read_protocol(name).settings) for name in shipped()}


@dataclass(frozen=True)
class StudyOptions:
    """The folder of a study, and how its runs are done."""

    output: Annotated[Path, Option("Folder of the study.", "FOLDER")]
    dry_run: DryRunOption = False
    redo: Annotated[bool, Option("Repeat finished runs.")] = False
    despite_findings: DespiteFindingsOption = False


@command(
    app,
    "study",
    "study landmarks faces.xml --set test=test.xml --set sites=6 -o study/",
    "study landmarks siteA.xml siteB.xml --set test=test.xml --set training.parts=eyes -o study/",
    "study detectors faces.xml --set test=test.xml --set together=folder -o study/",
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
    engine: EngineOptions,
    drawn: Annotated[bool, Option("Draw eyes or clips, instead of DATA.")] = False,
    quick: Annotated[bool, Option("A smaller study of networks, for two cores.")] = False,
    settings: SettingsOptions,
) -> Reply:
    """Compare models of several sites by the protocol of a paper.

    landmarks (table IV) and detectors (table II) need FACES and test data: they train models on
    each part, on growing unions and on all parts, and merge them by WBA or MWMA in growing numbers,
    in several orders, with weights, and with one part twice. Landmark models are also merged as a
    cascade that any program using dlib runs, refined in rounds, and thinned.

    gaze compares networks of each person alone, of all data in one place, and of federated methods,
    also with noisy images and hostile sites; gaze-paper trains as the paper says, and gaze-tuning
    compares candidates for settings. split compares split training with FedAvg, and attacks its
    smashed data. cross-encoder compares gaze heads from few labelled shots. privacy attacks the
    leaks of federated training, dualview as its paper does. egocentric asks whether a network of
    one's own helps each wearer of a camera. In these, each person of DATA, or drawn person, is a
    site. FILE.toml is a study of your own: its settings, steps (functions or commands), tables,
    verdicts and figures.

    FOLDER gets the table (table.md, with the verdict first, .csv), pictures, the result of each run
    or every model with its recipe, and study.json (digests, settings, seeds, versions, how to
    repeat it). 'poolctl settings study NAME' explains all settings. After an interruption, run the
    same command again to continue. If a run fails, the others continue.
    """
    protocol = read_protocol(name)
    paths = datasets or []
    if protocol.data is None and (paths or drawn):
        raise UsageError(f"study {name} takes no data")
    if protocol.data is not None and bool(paths) == drawn:
        raise UsageError("give data, or --drawn without any")
    if len(paths) > 1 and not getattr(protocol.data, "SEVERAL", False):
        raise UsageError(f"study {name} takes one data set")
    if quick and not protocol.content.quick:
        raise UsageError(f"study {name} has no smaller variant: --quick is not for it")
    engine.refuse_redo(redo=place.redo)
    return _hold(invocation, protocol, paths, place, settings, engine=engine, quick=quick)


def _hold(
    invocation: Invocation,
    protocol: Protocol,
    paths: Sequence[Path],
    place: StudyOptions,
    options: SettingsOptions,
    *,
    engine: EngineOptions,
    quick: bool,
) -> Reply:
    base = protocol.quick if quick else protocol.settings
    known = CommandSettings(protocol.settings)
    chosen = known.read(options, base)
    for path in paths:
        if not path.exists():
            raise InputMissingError(f"{path}: no such file; expected the data of the study")
    dataset = None
    if paths:
        dataset = protocol.data.open_data(paths, despite_findings=place.despite_findings)
    if place.dry_run:
        return _plan_reply(protocol.steps(dataset, chosen), chosen)
    # The command that does the same in another folder.
    repeat = ["poolctl", "study", protocol.source]
    if protocol.data is not None:
        repeat += [str(path.absolute()) for path in paths] or ["--drawn"]
    repeat += ["--despite-findings"] * place.despite_findings
    repeat += [*["--quick"] * quick, "-o", "again/", *known.repeated(chosen, base)]
    with invocation.progress(f"study {place.output.name}") as progress:
        conduct = Conduct(
            progress, engine.workers, engine.chosen_share, place.redo, repeat,
            lambda key, took_s: invocation.note(f"{key}  ({took_s:.1f} s)"),
        )  # fmt: skip
        results = hold_study(protocol, place.output, dataset, chosen, conduct)
    return _reply_of_protocol(results, place.output)


def _plan_reply(steps: Sequence[Step], settings: Any) -> Reply:
    columns = list(dict.fromkeys(name for step in steps for name in step.factors))
    rows = [[step.name, *(str(step.factors.get(name, "")) for name in columns)] for step in steps]
    runs = [{"key": step.key, "step": step.name, **step.factors} for step in steps]
    text: list[str | TableText] = [f"would do {len(steps)} runs"]
    text.append(TableText(["step", *columns], rows))
    return Reply({"runs": runs, "settings": settings}, text, [step.key for step in steps])


def _reply_of_protocol(results: StudyResults, folder: Path) -> Reply:
    """Return the tables of a study, which are in its first file, and the files written."""
    if results.elsewhere:
        return reply_of_share(folder, results.elsewhere, len(results.results), "run")
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
