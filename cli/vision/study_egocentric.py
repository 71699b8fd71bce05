"""``poolctl study egocentric``: personalised rounds of saliency and gaze networks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from cli.frame.addresses import first_lines
from cli.frame.errors import StudyIncompleteError, UsageError
from cli.frame.options import DryRunOption
from cli.frame.output import Invocation, Reply, TableText
from cli.options.data import part_words
from cli.vision.study_gaze import StudyFolderOption

EXAMPLES = [
    "study egocentric --drawn --quick -o study/",
    "study egocentric clips/ -o study/ --seeds 3",
    "study egocentric --drawn --quick --methods local,fedavg,fedcpf -o study/",
]


def study_egocentric(
    invocation: Invocation,
    dataset: Annotated[
        Path | None,
        typer.Argument(
            metavar="[CLIPS]", help="Egocentric clips of several persons.", show_default=False
        ),
    ] = None,
    *,
    output: StudyFolderOption,
    drawn: Annotated[
        bool, typer.Option(help="Draw persons who look alike, and of their own, instead of CLIPS.")
    ] = False,
    quick: Annotated[
        bool, typer.Option(help="A smaller study, of at most 90 minutes on two cores.")
    ] = False,
    methods: Annotated[
        str, typer.Option(metavar="A,B,...", help="Only these methods. Default: all.")
    ] = "",
    seeds: Annotated[
        int, typer.Option(min=0, help="Repetitions with other persons and starts; 0: the default.")
    ] = 0,
    workers: Annotated[
        int, typer.Option(min=0, help="Number of parallel runs; 0: one for each core.")
    ] = 0,
    redo: Annotated[bool, typer.Option(help="Repeat finished runs.")] = False,
    dry_run: DryRunOption = False,
) -> Reply:
    """Compare personalised methods: does a network of one's own for each person help?

    Each person is a site. The methods are local training, FedAvg, FedProx, FedPer, FedPAC,
    FedSelect, FedCPF and its random control, each with its best learning rate. With --drawn, on
    persons who look at the same things and who do not, and on gaze networks of drawn eyes.

    FOLDER gets table.md, a CSV file for each table, curves over rounds and over FedCPF's options,
    the result of each run, and study.json. After an interruption, run the same command again to
    continue.
    """
    from site_agent.datasets.egocentric import open_egocentric
    from site_agent.studies import egocentric

    if (dataset is None) != drawn:
        raise UsageError("give CLIPS, or --drawn without CLIPS")
    base = egocentric.QUICK if quick else egocentric.EgocentricStudySettings()
    settings = replace(base, seeds=seeds or base.seeds, methods=part_words(methods) or base.methods)
    data = None if dataset is None else open_egocentric(dataset)
    worlds = egocentric.worlds_of(settings, data)
    if dry_run:
        runs = egocentric.plan_tuning(worlds, settings)
        summary = f"would choose rates by {len(runs)} runs, and compare in {', '.join(worlds)}"
        rows = [[run.world, run.method, f"{run.rate:g}"] for run in runs]
        table = TableText(["world", "method", "learning rate"], rows)
        return Reply({"runs": runs}, [summary, table], [run.key for run in runs])
    repeat = ["poolctl", "study", "egocentric", str(dataset.absolute()) if dataset else "--drawn"]
    repeat += ["--quick"] * quick + ["-o", "again/"]
    repeat += ["--methods", methods] * bool(methods) + ["--seeds", str(seeds)] * bool(seeds)
    try:
        with invocation.progress(f"study {output.name}") as report:
            done = egocentric.conduct_egocentric_study(
                output, data, settings, workers=workers, redo=redo, repeat=repeat,
                on_run=lambda run, took_s: invocation.note(f"{run.key}  ({took_s:.1f} s)"),
                progress=report,
            )  # fmt: skip
    except KeyboardInterrupt:
        invocation.note("Finished runs are kept; run the same command again to continue.")
        raise
    if done.failed:
        lines = first_lines([f"{key}: {reason}" for key, reason in done.failed.items()])
        raise StudyIncompleteError(
            f"{len(done.failed)} of {len(done.runs)} runs failed; the others are finished and "
            f"listed in {done.files[0]}:\n" + "\n".join(lines)
        )
    facts = {
        "folder": output,
        "runs": {"done": len(done.results) - done.kept, "kept": done.kept},
        "findings": done.findings,
        "files": done.files,
    }
    tables = done.files[0].read_text(encoding="utf-8").split("\nTo repeat it")[0]
    return Reply(facts, [tables, *(f"written {path}" for path in done.files)], [str(output)])
