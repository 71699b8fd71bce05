"""Time from an empty home to the first blinks, and to the first reviewed one, in the app.

    python -m tests.benchmarks.app_first_start

Does the jobs of *Try it*: draws a video, trains the starter, finds the blinks; then accepts the
first one as the review's page does. The aim is at most 180 s on two quiet cores.
"""

import os
import re
import tempfile
import time
from pathlib import Path

from site_agent.jobs.folder import JobFolder
from site_agent.jobs.runner import run_jobs
from tests.site_agent.app.running_app import running_app


def main() -> None:
    """Print both times, and the verdict that a person sees."""
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        os.environ["POOL_HOME"] = str(home / "h")
        # The jobs are done here: a runner would have a low priority, and other work the machine.
        setattr(JobFolder, "start_runner", lambda _: None)  # noqa: B010 (a method)
        with running_app(home / "h", home / "r") as app:
            assert "Find blinks in your videos" in app.get("/").text
            began_s = time.perf_counter()
            app.post("/try")
            run_jobs(app.lab.jobs, idle_s=0.0)
            [row] = app.lab.studies.current().recordings()
            page = app.get(f"/results/{row.recording}").text
            verdict = re.search(r'class="verdict"><b>(.*?)</b>', page)
            assert verdict is not None
            print(f"first blinks after {time.perf_counter() - began_s:.0f} s: {verdict[1]}")
            action = {"action": "accept", "blink_id": 1}
            answer = app.client.post(
                f"{app.address}/results/{row.recording}/review/api/actions",
                json={"revision": 0, "action": action},
                headers={"origin": app.origin, "x-csrf-token": app.csrf()},
            )
            assert answer.status_code == 200, answer.text
            assert "It is analysed." in app.get("/").text
            print(f"first one reviewed after {time.perf_counter() - began_s:.0f} s")


if __name__ == "__main__":
    main()
