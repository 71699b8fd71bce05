"""``poolctl study gaze``: gaze networks trained alone, in one place, and federated."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from cli.frame.options import Argument, Option
from cli.frame.output import Invocation, Reply
from cli.frame.settings_options import SettingsOptions
from cli.options.studies import (
    RunOptions,
    StudyOptions,
    conducted,
    data_or_drawn,
    plan_reply,
    repeat_words,
    study_reply,
)
from site_agent.studies.gaze.settings import GazeStudySettings, for_tuning, make_settings

GazeStudyData = Annotated[Path | None, Argument("Gaze data in any layout.", "[DATA]")]

DrawnOption = Annotated[bool, Option("Draw the eyes, instead of DATA.")]

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
    runs: RunOptions,
    **settings: Any,
) -> Reply:
    """Repeat the protocol of the paper on federated gaze estimation.

    Trains networks of each person alone, of all data in one place, by FedAvg and by adaptive
    federated learning; tests on held-out sessions and on held-out persons; adds noise to the
    images of some sites; lets some sites send hostile updates, and combines by robust rules.

    FOLDER gets table.md, a CSV file for each table, pictures, the result of each run, and
    study.json (settings, digests, versions). After an interruption, run the same command again to
    continue.
    """
    from site_agent.datasets.gaze import open_gaze
    from site_agent.studies.gaze import conduct_gaze_study, look_at_gaze_study

    data_or_drawn(dataset, drawn)
    base = make_settings(preset=preset, quick=quick)
    chosen = GAZE_SETTINGS.take(settings, base)
    more = ["--tune"] * tune + ["--preset", preset, *GAZE_SETTINGS.repeated(chosen, base)]
    if tune:
        chosen = for_tuning(chosen)
    data = None if dataset is None else open_gaze(dataset)
    if study.dry_run:
        planned = look_at_gaze_study(data, chosen, tune=tune)
        rows = [[run.protocol, run.method, run.group, str(run.seed)] for run in planned]
        return plan_reply(planned, ["protocol", "method", "group", "seed"], rows)
    repeat = repeat_words("gaze", dataset, quick=quick, more=more)
    with conducted(invocation, study, runs, repeat) as conduct:
        done = conduct_gaze_study(study.output, data, chosen, conduct, tune=tune)
    return study_reply(done, study, findings=done.findings)


# ``poolctl study privacy``: what updates, sums and final networks reveal of those who trained.
PRIVACY_EXAMPLES = ["study privacy --drawn --quick -o study/", "study privacy MPIIGaze/ -o study/"]


def study_privacy(
    invocation: Invocation,
    dataset: GazeStudyData = None,
    *,
    study: StudyOptions,
    drawn: DrawnOption = False,
    quick: Annotated[bool, Option("A smaller study, of some minutes on two cores.")] = False,
    runs: RunOptions,
) -> Reply:
    """Attack what federated training leaks: single updates, sums, the final network, nothing.

    Each person is a site. The same attacks with the same budget run on each leak: re-identification
    by updates and by losses, reconstruction of pictures and of the distribution of gaze (DualView),
    membership by samples and by persons, attributes; and on sums over 1, 3, 5 and 15 sites.

    FOLDER gets table.md, a CSV file for each table, a sheet of pictures, the scores of each probe
    (a run), and study.json. After an interruption, run the same command again to continue.
    """
    from site_agent.datasets.gaze import open_gaze
    from site_agent.studies.privacy import conduct_privacy_study, make_privacy_settings

    data_or_drawn(dataset, drawn)
    settings = make_privacy_settings(quick=quick)
    data = None if dataset is None else open_gaze(dataset)
    if study.dry_run:
        summary = (
            f"would hold {settings.rounds} rounds of {settings.victims} victims with each of "
            f"{settings.seeds} seeds, and attack 4 leaks and {len(settings.sweep)} sums"
        )
        return Reply({"settings": settings}, [summary], [str(study.output)])
    repeat = repeat_words("privacy", dataset, quick=quick)
    with conducted(invocation, study, runs, repeat) as conduct:
        done = conduct_privacy_study(study.output, data, settings, conduct)
    return study_reply(done, study, results=done.results)
