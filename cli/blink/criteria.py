"""``poolctl blink compare-criteria``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from cli.blink.inputs import SessionsArgument
from cli.frame.options import command, single
from cli.frame.output import Invocation, Reply, TableText

if TYPE_CHECKING:
    from site_agent.eyeblink.study.criteria import CriteriaComparison, CriterionRow

app = single()


@command(
    app,
    "compare-criteria",
    examples=[
        "blink compare-criteria study/",
        "blink compare-criteria study/ --question groups --measure amplitude_all",
        'blink compare-criteria study/ --criteria fec:0.05 --criteria "fec:0.1 smoothing_ms=20"',
    ],
)
def compare(
    invocation: Invocation,
    places: SessionsArgument,
    *,
    criteria: Annotated[
        Sequence[str],
        typer.Option(
            metavar="CRITERION",
            help="RULE:THRESHOLD (fec, ur-share, baseline-sd) and settings; repeatable. "
            "Default: all usual criteria.",
        ),
    ] = (),
    question: Annotated[
        Literal["learning", "groups"],
        typer.Option(
            help="Does the measure change over sessions (learning), or differ between two "
            "groups (groups)?"
        ),
    ] = "learning",
    measure: Annotated[
        Literal["cr_percent", "amplitude_all", "amplitude_cr"],
        typer.Option(help="The measure to compare."),
    ] = "cr_percent",
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Folder of the results. Default: STUDY, or the folder criteria.",
        ),
    ] = None,
) -> Reply:
    """Test whether a study's conclusion depends on the definition of a response.

    Recomputes the study under many reasonable criteria, from the signals of its sessions, and shows
    whether the conclusion holds. Writes criteria.csv, criteria.json and criteria.png.
    """
    from site_agent.eyeblink.study.criteria import compare_criteria, default_criteria, read_criteria
    from site_agent.eyeblink.study.sessions import read_study
    from site_agent.eyeblink.study.tables import write_criteria

    study = read_study(places)
    for remark in study.remarks:
        invocation.warn(remark)
    chosen = (
        read_criteria(criteria, study.settings) if criteria else default_criteria(study.settings)
    )
    with invocation.progress("compare criteria") as report:
        found = compare_criteria(study, chosen, question=question, measure=measure, progress=report)
    is_study = len(places) == 1 and (places[0] / "batch.csv").is_file()
    folder = output or (places[0] if is_study else Path("criteria"))
    files = write_criteria(folder, found, chosen)
    data = {**found.to_dict(), "sessions": len(study), "files": files}
    written = TableText(["what", "value"], [[name, str(path)] for name, path in files.items()])
    return Reply(data, [_table(found), f"{found.conclusion}.", written], [str(files["csv"])])


def _table(found: CriteriaComparison) -> TableText:
    columns = ["criterion", "trials", "rejected", "CR %", "effect", "95 %", "p", "agrees"]
    return TableText(columns, [_row(row) for row in found.rows])


def _row(row: CriterionRow) -> list[str]:
    counts = [row.criterion, str(row.n_valid), str(row.n_rejected), f"{row.cr_percent:.1f}"]
    if row.effect is None:
        return [*counts, row.problem, "", "", "no"]
    effect = row.effect
    interval = f"{effect.low:+.3g} to {effect.high:+.3g}"
    p_value = f"{effect.p_value:.3g}"
    return [*counts, f"{effect.estimate:+.3g}", interval, p_value, "yes" if row.agrees else "no"]
