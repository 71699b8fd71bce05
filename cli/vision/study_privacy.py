"""``poolctl study privacy``: what updates, sums and final networks reveal of those who trained."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.frame.errors import UsageError
from cli.frame.options import DryRunOption
from cli.frame.output import Invocation, Reply
from cli.vision.study_gaze import DrawnOption, GazeStudyData, StudyFolderOption

EXAMPLES = [
    "study privacy --drawn --quick -o study/",
    "study privacy MPIIGaze/ -o study/",
]


def study_privacy(
    invocation: Invocation,
    dataset: GazeStudyData = None,
    *,
    output: StudyFolderOption,
    drawn: DrawnOption = False,
    quick: Annotated[
        bool, typer.Option(help="A smaller study, of some minutes on two cores.")
    ] = False,
    dry_run: DryRunOption = False,
) -> Reply:
    """Attack what federated training leaks: single updates, sums, the final network, nothing.

    Each person is a site. The same attacks with the same budget run on each leak: re-identification
    by updates and by losses, reconstruction of pictures and of the distribution of gaze (DualView),
    membership by samples and by persons, attributes; and on sums over 1, 3, 5 and 15 sites.

    FOLDER gets table.md, a CSV file for each table, a sheet of pictures, the scores of each seed,
    and study.json. After an interruption, run the same command again to continue.
    """
    from site_agent.datasets.gaze import open_gaze
    from site_agent.studies.privacy import conduct_privacy_study, make_privacy_settings

    if (dataset is None) != drawn:
        raise UsageError("give DATA, or --drawn without DATA")
    settings = make_privacy_settings(quick=quick)
    data = None if dataset is None else open_gaze(dataset)
    if dry_run:
        told = (
            f"would hold {settings.rounds} rounds of {settings.victims} victims with each of "
            f"{settings.seeds} seeds, and attack 4 leaks and {len(settings.sweep)} sums"
        )
        return Reply({"settings": settings}, [told], [str(output)])
    repeat = ["poolctl", "study", "privacy", str(dataset.absolute()) if dataset else "--drawn"]
    repeat += ["--quick"] * quick + ["-o", "again/"]
    try:
        with invocation.progress(f"study {output.name}") as report:
            done = conduct_privacy_study(
                output, data, settings, repeat=repeat, progress=report,
                on_seed=lambda seed, took_s: invocation.note(f"seed {seed}  ({took_s:.0f} s)"),
            )  # fmt: skip
    except KeyboardInterrupt:
        invocation.note("Finished seeds are kept; run the same command again to continue.")
        raise
    data_of = {
        "folder": output,
        "seeds": {"done": len(done.results) - done.kept, "kept": done.kept},
        "results": done.results,
        "files": done.files,
    }
    table = done.files[0].read_text(encoding="utf-8").split("\nTo repeat it")[0]
    return Reply(data_of, [table, *(f"written {path}" for path in done.files)], [str(output)])
