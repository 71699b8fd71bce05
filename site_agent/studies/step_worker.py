"""The child process that does steps: ``python -m site_agent.studies.step_worker``.

It gets `StepJob`s, and ends each with its warnings; see `site_agent.runs.worker_process`.
"""

from __future__ import annotations

from site_agent.runs.worker_process import do_jobs
from site_agent.studies.step_jobs import run_job


def main() -> None:
    """Do jobs until standard input ends."""
    do_jobs(lambda job, tell: list(run_job(job, tell)), lambda job: job.folder)


if __name__ == "__main__":
    main()
