"""The child process that does runs: ``python -m site_agent.studies.gaze.worker``."""

from __future__ import annotations

from site_agent.runs.worker_process import do_jobs
from site_agent.studies.gaze.working import do_run


def main() -> None:
    """Do jobs until standard input ends."""
    do_jobs(do_run, lambda job: job.run.key)


if __name__ == "__main__":
    main()
