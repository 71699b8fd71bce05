"""``poolctl blink fit-together``: a study of conditioning over labs that cannot share trials."""

import sys
from pathlib import Path
from typing import Annotated

from cli.blink.inputs import SessionsArgument
from cli.frame.options import DryRunOption, Option, YesOption, command, single
from cli.frame.output import Invocation, Reply, TableText, markdown_parts
from cli.secure.charter import FolderOption, SiteOption, chosen_charter, party_folder, party_name
from site_agent.secure.lab import Lab
from site_agent.secure.party import Board
from site_agent.wording import count_words

app = single()


@command(
    app,
    "fit-together",
    "blink fit-together study/ -o together/ --dry-run",
    "blink fit-together study/ -o together/ --wait",
    "blink fit-together all_trials.csv --charter 4f1d2c3b4a59 -o together/",
)
def fit_together(
    invocation: Invocation,
    places: SessionsArgument,
    *,
    output: Annotated[Path, Option("Folder of the report.", "FOLDER")],
    charter: Annotated[
        str, Option("The accepted charter of the study. Default: the only one.", "SHA256")
    ] = "",
    wait: Annotated[bool, Option("Wait for the other labs and the servers until the end.")] = False,
    site: SiteOption = "",
    folder: FolderOption = None,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
) -> Reply:
    """Fit models to the trials of several labs without showing them to each other.

    The charter has design, criterion and models ('poolctl secure charter create --study'). Your
    trials stay here: only shares of sums over all labs leave, of about ten numbers each
    (28 of a mixed model with two groups). Without --wait, run the command again until it writes the
    report: each sum takes two visits of each lab. With --dry-run, see your first numbers; nothing
    is sent. 'secure/studies' next to the logins keeps all numbers that you gave.
    """
    from site_agent.joint_study import JointStudy, read_design, read_trials
    from site_agent.joint_study.report import own_estimates, write_report

    place = party_folder(folder)
    agreed = chosen_charter(place, charter)
    design = read_design(agreed)
    trials = read_trials(places, design)
    name = party_name(invocation, site)
    if trials.outside:
        invocation.warn(
            f"{count_words(trials.outside, 'trial')} of sessions before {design.sessions[0]:g} or "
            f"after {design.sessions[1]:g} do not count: number sessions as the other labs do"
        )
    with invocation.pool() as pool, invocation.progress(f"study {agreed.terms.name}") as report:
        lab = Lab(place, name, agreed.digest, Board(pool.secure, charter=agreed))
        study = JointStudy(lab, trials, report)
        if dry_run or (not study.folder.is_dir() and sys.stdin.isatty() and not yes):
            preview = study.preview()
            animals = count_words(len(trials.names), "animal")
            text: list[str | TableText] = [
                f"{animals}, {trials.of.sum():g} trials of sessions {trials.sessions[0]:g} to "
                f"{trials.sessions[1]:g}; the first sum, over at least {agreed.terms.least_labs} "
                "labs, would take from you:",
                TableText(["number", "value"], [[key, f"{x:.6g}"] for key, x in preview.items()]),
                f"shared among {', '.join(agreed.servers)}; nobody sees them but in the sum",
            ]
            if dry_run:
                return Reply({"numbers": preview, "design": design}, text, [agreed.digest])
            invocation.print_reply(Reply({"numbers": preview}, text, []))
            invocation.confirm("Take part?", assume_yes=False)
        visit = study.visit(wait=wait)
    if visit.results is None:
        assert visit.waiting is not None
        waiting = ", ".join(visit.waiting.waiting) or "the servers"
        said = f"{count_words(visit.sums, 'sum')} verified; the next is at {visit.waiting.phase} "
        data = {"sums": visit.sums, "waiting": visit.waiting, "results": None}
        return Reply(data, f"{said}and waits for {waiting}: run this again", [agreed.digest])
    repeat = ["poolctl", "blink", "fit-together", *map(str, places), "-o", str(output)]
    repeat += ["--charter", agreed.digest]
    alone = own_estimates(trials, design, name)
    files = write_report(
        output, agreed.terms.name, design, visit.results, visit.labs, alone=alone, repeat=repeat
    )
    shown = files[0].read_text(encoding="utf-8").split("\nTo repeat it")[0]
    report_text = [*markdown_parts(shown), *(f"written {file}" for file in files)]
    data = {"sums": visit.sums, "labs": visit.labs, "results": visit.results, "files": files}
    return Reply(data, report_text, [str(output)])
