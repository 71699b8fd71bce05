"""``poolctl jobs``, long work that was asked for, and ``status``, of the work in a folder."""

from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Annotated

from cli.frame.options import Argument, Option, command, group, single
from cli.frame.output import Invocation, Reply, TableText
from site_agent.jobs.folder import JobFolder, JobView
from site_agent.jobs.runner import run_jobs
from site_agent.wording import count_words, duration_words
from site_agent.work.claims import read_status

app = group("List, stop and repeat long work that was asked for.")
status_app = single()

JobsArgument = Annotated[
    list[str], Argument("Numbers of jobs, their first letters, or names of groups.", "JOB...")
]


@command(app, "ls", "jobs ls", "jobs ls 3f9c")
def ls(
    invocation: Invocation,  # noqa: ARG001
    job: Annotated[str, Argument("Show this job, or list the jobs of this group.", "[JOB]")] = "",
) -> Reply:
    """List jobs in the order of the queue, or show one; those asked for together are one line."""
    jobs = JobFolder()
    views = jobs.views()
    members = [view for view in views if view.job.group == job] if job else []
    if job and not members:
        return _show(jobs, jobs.view(job))
    rows = [_row(view) for view in members]
    groups = groupby([] if job else views, key=lambda view: view.job.group or view.job.id)
    for name, job_views in groups:
        together = list(job_views)
        if len(together) == 1:
            rows.append(_row(together[0]))
        else:
            counts = Counter(view.state.state for view in together)
            states = ", ".join(f"{count} {state}" for state, count in counts.items())
            rows.append([name, states, f"{len(together)} jobs", "", "group"])
    columns = ["job", "state", "title", "time left", "kind"]
    return Reply(
        {"items": members or views},
        TableText(columns, rows, empty="no jobs"),
        [row[0] for row in rows],
    )


def _row(view: JobView) -> list[str]:
    state = view.state
    share = f" {100 * state.share:.0f} %" if state.share and state.state == "running" else ""
    left = "" if state.seconds_left is None else duration_words(state.seconds_left)
    return [view.job.id, f"{state.state}{share}", view.job.title, left, view.job.kind]


def _show(jobs: JobFolder, view: JobView) -> Reply:
    """Describe the state of a job with its reason, its events and its log."""
    events, log = jobs.events(view.job.id), jobs.log(view.job.id)
    state = view.state
    rows = [
        ["job", view.job.id],
        ["title", view.job.title],
        ["state", state.state],
        *([["reason", state.reason]] if state.reason else []),
        *([["now", state.text]] if state.text else []),
        ["attempt", str(state.attempt)],
        *[[event["at"], event["what"]] for event in events],
        *[[name, str(value)] for name, value in view.result.items() if value != []],
    ]
    text: list[str | TableText] = [TableText(["what", "value"], rows)]
    data = {"job": view.job, "state": state, "result": view.result, "events": events, "log": log}
    return Reply(data, [*text, *([log.rstrip()] if log.strip() else [])], [view.job.id])


@command(app, "cancel", "jobs cancel 3f9c")
def cancel(invocation: Invocation, jobs: JobsArgument) -> Reply:  # noqa: ARG001
    """Stop jobs; nothing half-written stays."""
    folder = JobFolder()
    numbers = [number for number in _numbers(folder, jobs) if not folder.view(number).ended]
    for number in numbers:
        folder.cancel(number)
    return Reply({"jobs": numbers}, f"{count_words(len(numbers), 'job')} stopped.", numbers)


@command(app, "retry", "jobs retry 3f9c")
def retry(invocation: Invocation, jobs: JobsArgument) -> Reply:  # noqa: ARG001
    """Repeat failed or stopped jobs; of a group, only its failed or stopped ones."""
    folder = JobFolder()
    repeatable = ("failed", "cancelled")
    named = [folder.view(number) for number in _numbers(folder, jobs)]
    chosen = [v.job.id for v in named if v.state.state in repeatable or len(named) == 1]
    for number in chosen:
        folder.retry(number)
    folder.start_runner()
    return Reply({"jobs": chosen}, f"{count_words(len(chosen), 'job')} queued again.", chosen)


@command(app, "rm", "jobs rm 3f9c")
def rm(invocation: Invocation, jobs: JobsArgument) -> Reply:  # noqa: ARG001
    """Forget jobs that have ended; their results stay."""
    folder = JobFolder()
    numbers = _numbers(folder, jobs)
    for number in numbers:
        folder.remove(number)
    return Reply({"jobs": numbers}, f"{count_words(len(numbers), 'job')} forgotten.", numbers)


@command(app, "run", "jobs run", "jobs run --workers 4")
def run(
    invocation: Invocation,
    *,
    workers: Annotated[
        int | None, Option("Jobs in parallel. Default: half of the cores, at least two.", min=1)
    ] = None,
) -> Reply:
    """Do all waiting jobs in this terminal, and end with the last of them."""
    folder = JobFolder()
    with invocation.progress("jobs") as report:
        report(None, "at work; 'poolctl jobs ls' lists them")
        is_alone = run_jobs(folder, slots=workers, idle_s=0.0)
    text = "No job waits." if is_alone else "Another process does the jobs already."
    return Reply({"ran": is_alone}, text)


def _numbers(folder: JobFolder, names: Sequence[str]) -> list[str]:
    """Return the numbers of jobs by number or group."""
    views = folder.views()
    numbers = []
    for name in names:
        members = [view.job.id for view in views if view.job.group == name]
        numbers += members or [folder.view(name).job.id]
    return numbers


@command(status_app, "status", "status study/", "status run/")
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
        text.append(TableText(["job", "state", "where or why"], rows))
    shown = [{"job": job.key, "state": job.state, "where": job.where} for job in jobs]
    return Reply({"what": what, "counts": counts, "jobs": shown}, text, [job.key for job in jobs])
