"""``poolctl study gaze|split|cross-encoder|privacy|egocentric``, and parts of all studies."""

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from cli.frame.errors import UsageError, incomplete
from cli.frame.options import Argument, DespiteFindingsOption, DryRunOption, Option
from cli.frame.output import Invocation, Reply, TableText, markdown_parts
from cli.frame.settings_options import SettingsOptions
from cli.vision.train_gaze import open_gaze_data
from site_agent.datasets.egocentric import EgocentricDataset, open_egocentric
from site_agent.datasets.gaze.records import GazeDataset
from site_agent.datasets.soundness import require_sound
from site_agent.studies import cross_encoder, egocentric, split
from site_agent.studies.eyes import StudyKind, conduct_study
from site_agent.studies.gaze.settings import GazeStudySettings, for_tuning, make_settings
from site_agent.studies.privacy import persons as privacy
from site_agent.studies.runs import Conduct, StudyResults
from site_agent.wording import first_lines

Data = TypeVar("Data", GazeDataset, EgocentricDataset)


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

    def checked(self, data: Data) -> Data:
        """Return the data of a study of networks; refuse faults that must be mended."""
        require_sound(data, despite_findings=self.despite_findings)
        return data


@contextmanager
def kept_when_interrupted(invocation: Invocation, what: str) -> Iterator[None]:
    """Say after Ctrl-C that finished `what` are kept."""
    try:
        yield
    except KeyboardInterrupt:
        invocation.note(f"Finished {what} are kept; run the same command again to continue.")
        raise


def data_or_drawn(dataset: Path | None, drawn: bool, *, name: str = "DATA") -> None:
    """Refuse a study that has both data and `--drawn`, or neither."""
    if (dataset is None) != drawn:
        raise UsageError(f"give {name}, or --drawn without {name}")


def repeat_words(
    name: str, dataset: Path | None, *, quick: bool, more: Sequence[str] = ()
) -> list[str]:
    """Return the words of the command that repeats a study in another folder."""
    data = str(dataset.absolute()) if dataset else "--drawn"
    return ["poolctl", "study", name, data, *["--quick"] * quick, "-o", "again/", *more]


@contextmanager
def conducted(
    invocation: Invocation, study: StudyOptions, repeat: Sequence[str]
) -> Iterator[Conduct]:
    """Yield how the study is conducted: with progress, and a line for each finished run."""
    with (
        kept_when_interrupted(invocation, "runs"),
        invocation.progress(f"study {study.output.name}") as progress,
    ):
        yield Conduct(
            progress,
            study.workers,
            study.redo,
            repeat,
            lambda key, took_s: invocation.note(f"{key}  ({took_s:.1f} s)"),
        )


def plan_reply(
    runs: Sequence[Any], columns: Sequence[str], rows: Sequence[Sequence[str]], summary: str = ""
) -> Reply:
    """Return the runs that a study would do, for `--dry-run`."""
    table = TableText(list(columns), [list(row) for row in rows])
    text: list[str | TableText] = [summary or f"would do {len(runs)} runs", table]
    return Reply({"runs": runs}, text, [run.key for run in runs])


def study_reply(results: StudyResults, study: StudyOptions) -> Reply:
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
        "folder": study.output, "runs": counts, "findings": results.findings,
        "results": results.results, "files": results.files,
    }  # fmt: skip
    return Reply(shown, text, [str(study.output)])


GazeStudyData = Annotated[Path | None, Argument("Gaze data in any layout.", "[DATA]")]
DrawnOption = Annotated[bool, Option("Draw the eyes, instead of DATA.")]
_FOLDER_HELP = """\
FOLDER gets table.md with the verdict first, a CSV file for each table, pictures, the result of
each run, and study.json (settings, digests, versions). After an interruption, run the same command
again to continue.
"""

GAZE_SETTINGS = SettingsOptions(
    GazeStudySettings(), "settings study gaze", ("protocols", "seeds", "folds", "passes", "secure")
)
GAZE_EXAMPLES = [
    "study gaze --drawn --quick -o study/",
    "study gaze MPIIGaze/ -o study/ --workers 2",
    "study gaze eyes/ -o study/ --folds 0 --protocols persons",
    "study gaze --drawn --quick --protocols persons --secure -o study/",
    "study gaze --drawn --quick --tune -o tuning/",
]
SPLIT_SETTINGS = SettingsOptions(
    split.SplitStudySettings(),
    "settings study split",
    ("architecture", "methods", "seeds", "folds", "rounds", "levels"),
)
SPLIT_EXAMPLES = [
    "study split --drawn --quick -o study/",
    "study split MPIIGaze/ -o study/ --folds 15",
    "study split --drawn --quick --seeds 3 --folds 1 --methods mean-gaze,v1 -o study/",
]
CROSS_ENCODER_SETTINGS = SettingsOptions(
    cross_encoder.CrossEncoderStudySettings(),
    "settings study cross-encoder",
    ("architecture", "methods", "seeds", "left_out", "shots", "rounds"),
)
CROSS_ENCODER_EXAMPLES = [
    "study cross-encoder --drawn --quick -o study/",
    "study cross-encoder eyes/ -o study/ --shots 10,100 --workers 2",
    "study cross-encoder --drawn --quick --methods cross-encoder,random,pca -o study/",
]
PRIVACY_SETTINGS = SettingsOptions(privacy.PrivacySettings(), "settings study privacy", ("seeds",))
PRIVACY_EXAMPLES = ["study privacy --drawn --quick -o study/", "study privacy MPIIGaze/ -o study/"]


def study_gaze(
    invocation: Invocation,
    dataset: GazeStudyData = None,
    *,
    study: StudyOptions,
    drawn: DrawnOption = False,
    quick: Annotated[bool, Option("A smaller study, of less than an hour on two cores.")] = False,
    preset: Annotated[
        Literal["paper", "tuned"],
        Option("How methods train: as the paper says, or as tuned for --quick."),
    ] = "tuned",
    tune: Annotated[
        bool, Option("Compare candidates for tuned settings instead, with other seeds.")
    ] = False,
    **settings: Any,
) -> Reply:
    """Repeat the protocol of the paper on federated gaze estimation.

    Trains networks of each person alone, of all data in one place, by FedAvg and by adaptive
    federated learning; tests on held-out sessions and on held-out persons; adds noise to the
    images of some sites; lets some sites send hostile updates, and combines by robust rules.
    """
    from site_agent.studies import kinds

    base = make_settings(preset=preset, quick=quick)
    chosen, changed = GAZE_SETTINGS.choose(settings, base)
    more = ["--tune"] * tune + ["--preset", preset, *changed]
    kind = kinds.GAZE_TUNING if tune else kinds.GAZE
    chosen = for_tuning(chosen) if tune else chosen
    return _hold(invocation, kind, dataset, study, chosen, drawn=drawn, quick=quick, more=more)


def study_split(
    invocation: Invocation,
    dataset: GazeStudyData = None,
    *,
    study: StudyOptions,
    drawn: DrawnOption = False,
    quick: Annotated[bool, Option("A smaller study, of some minutes on one core.")] = False,
    **settings: Any,
) -> Reply:
    """Compare split training with FedAvg on persons left out, and attack its smashed data.

    Each person is a site. The table has the data centre, single persons, FedAvg, the variants of
    split training, also with differential privacy, and predictors without a picture: the mean gaze
    and the head pose. Smashed data are attacked at several strengths of noise.
    """
    from site_agent.studies import kinds

    chosen, more = SPLIT_SETTINGS.choose(settings, split.QUICK if quick else None)
    return _hold(
        invocation, kinds.SPLIT, dataset, study, chosen, drawn=drawn, quick=quick, more=more
    )


def study_cross_encoder(
    invocation: Invocation,
    dataset: GazeStudyData = None,
    *,
    study: StudyOptions,
    drawn: DrawnOption = False,
    quick: Annotated[bool, Option("A smaller study, of some ten minutes on one core.")] = False,
    **settings: Any,
) -> Reply:
    """Compare gaze heads from few labelled shots on federated encoders that were shown no label.

    Persons are left out; the others are sites, which train a cross-encoder in rounds from frames
    with both eyes. A linear head is fitted to 5 to 200 shots of each left-out person. It is
    compared with a cross-encoder trained in one place, an auto-encoder, a random encoder, PCA-12, a
    network that learns from the shots alone, the head pose, and the mean gaze, all with the same
    shots.
    """
    from site_agent.studies import kinds

    chosen, more = CROSS_ENCODER_SETTINGS.choose(settings, cross_encoder.QUICK if quick else None)
    kind = kinds.CROSS_ENCODER
    return _hold(invocation, kind, dataset, study, chosen, drawn=drawn, quick=quick, more=more)


def study_privacy(
    invocation: Invocation,
    dataset: GazeStudyData = None,
    *,
    study: StudyOptions,
    drawn: DrawnOption = False,
    quick: Annotated[bool, Option("A smaller study, of some minutes on two cores.")] = False,
    **settings: Any,
) -> Reply:
    """Attack the leaks of federated training: single updates, sums, the final network, nothing.

    Each person is a site. The same attacks with the same budget run on each leak: re-identification
    by updates and by losses, reconstruction of pictures and of the distribution of gaze (DualView),
    membership by samples and by persons, attributes; and on sums over 1, 3, 5 and 15 sites.
    """
    from site_agent.studies.privacy.conducting import conduct_privacy_study

    data_or_drawn(dataset, drawn)
    chosen, more = PRIVACY_SETTINGS.choose(settings, privacy.QUICK if quick else None)
    data = None if dataset is None else study.checked(open_gaze_data(dataset))
    if study.dry_run:
        summary = (
            f"would hold {chosen.rounds} rounds of {chosen.victims} victims with each of "
            f"{chosen.seeds} seeds, and attack 4 leaks and {len(chosen.sweep)} sums"
        )
        return Reply({"settings": chosen}, [summary], [str(study.output)])
    repeat = repeat_words("privacy", dataset, quick=quick, more=more)
    with conducted(invocation, study, repeat) as conduct:
        results = conduct_privacy_study(study.output, data, chosen, conduct)
    return study_reply(results, study)


for _study in (study_gaze, study_split, study_cross_encoder, study_privacy):
    _study.__doc__ = f"{inspect.getdoc(_study)}\n\n{_FOLDER_HELP}"


def _hold(
    invocation: Invocation,
    kind: StudyKind,
    dataset: Path | None,
    study: StudyOptions,
    settings: Any,
    *,
    drawn: bool,
    quick: bool,
    more: Sequence[str],
) -> Reply:
    """Hold a study, or show its runs."""
    data_or_drawn(dataset, drawn)
    data = None if dataset is None else study.checked(open_gaze_data(dataset))
    if study.dry_run:
        planned = kind.runs(data, settings)
        rows = [[_cell(getattr(run, name)) for name in kind.columns] for run in planned]
        return plan_reply(planned, kind.columns, rows)
    repeat = repeat_words(kind.name, dataset, quick=quick, more=more)
    with conducted(invocation, study, repeat) as conduct:
        results = conduct_study(kind, study.output, data, settings, conduct)
    return study_reply(results, study)


def _cell(value: Any) -> str:
    return ", ".join(value) if isinstance(value, tuple) else str(value)


EGOCENTRIC_SETTINGS = SettingsOptions(
    egocentric.EgocentricStudySettings(), "settings study egocentric", ("methods", "seeds")
)
EGOCENTRIC_EXAMPLES = [
    "study egocentric --drawn --quick -o study/",
    "study egocentric clips/ -o study/ --seeds 3",
    "study egocentric --drawn --quick --methods local,fedavg,fedcpf -o study/",
]


def study_egocentric(
    invocation: Invocation,
    dataset: Annotated[
        Path | None, Argument("Egocentric clips of several persons.", "[CLIPS]")
    ] = None,
    *,
    study: StudyOptions,
    drawn: Annotated[
        bool, Option("Draw persons who look alike, and of their own, instead of CLIPS.")
    ] = False,
    quick: Annotated[bool, Option("A smaller study, of at most 90 minutes on two cores.")] = False,
    **settings: Any,
) -> Reply:
    """Compare personalised methods: does a network of one's own for each person help?

    Each person is a site. The methods are local training, FedAvg, FedProx, FedPer, FedPAC,
    FedSelect, FedCPF and its random control, each with its best learning rate. With --drawn, on
    persons with equal and with different preferences, and on gaze networks of drawn eyes.

    FOLDER gets table.md, a CSV file for each table, curves over rounds and over FedCPF's options,
    the result of each run, and study.json. After an interruption, run the same command again to
    continue.
    """
    from site_agent.studies.egocentric import conducting

    data_or_drawn(dataset, drawn, name="CLIPS")
    chosen, more = EGOCENTRIC_SETTINGS.choose(settings, egocentric.QUICK if quick else None)
    data = None if dataset is None else study.checked(open_egocentric(dataset))
    worlds = egocentric.worlds_of(chosen, data)
    if study.dry_run:
        planned = egocentric.plan_tuning(worlds, chosen)
        summary = f"would choose rates by {len(planned)} runs, and compare in {', '.join(worlds)}"
        rows = [[run.world, run.method, f"{run.rate:g}"] for run in planned]
        return plan_reply(planned, ["world", "method", "learning rate"], rows, summary)
    repeat = repeat_words("egocentric", dataset, quick=quick, more=more)
    with conducted(invocation, study, repeat) as conduct:
        results = conducting.conduct_egocentric_study(study.output, data, chosen, conduct)
    return study_reply(results, study)
