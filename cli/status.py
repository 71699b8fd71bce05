"""``poolctl status``: how far the work in a folder is, from any machine that sees it."""

from collections import Counter
from pathlib import Path
from typing import Annotated

from cli.frame.options import Argument, command, single
from cli.frame.output import Invocation, Reply, TableText
from site_agent.wording import count_words
from site_agent.work.claims import read_status

app = single()


@command(app, "status", "status study/", "status run/")
def status(
    _invocation: Invocation,
    folder: Annotated[
        Path, Argument("Of a study, a batch of recordings, or a simulation.", "FOLDER")
    ],
) -> Reply:
    """Show which jobs of a folder are done, run, failed, or wait, and where they run.

    It works from any machine that sees the folder, and writes nothing. A job is lost if its process
    has ended without a result: the same command again does it.
    """
    what, jobs = read_status(folder)
    counts = Counter(job.state for job in jobs)
    summary = ", ".join(f"{counts[state]} {state}" for state in counts) or "no jobs"
    rows = [[job.key, job.state, job.where] for job in jobs if job.state not in ("done", "waiting")]
    text: list[str | TableText] = [f"{what} {folder}: {count_words(len(jobs), 'job')} ({summary})"]
    if rows:
        text.append(TableText(["job", "state", "where or why"], rows, keep=("job", "state")))
    shown = [{"job": job.key, "state": job.state, "where": job.where} for job in jobs]
    return Reply({"what": what, "counts": counts, "jobs": shown}, text, [job.key for job in jobs])
