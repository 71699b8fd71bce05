"""Time of an analysis by the app's jobs relative to ``blink batch``, interleaved.

    python -m tests.benchmarks.app_speed [REPEATS] [SECONDS]

Both analyse the same 60 drawn videos of SECONDS, four of them broken, with the starter model, in
turns, so that another load of the machine meets both; the median of the ratios is printed. The
aim is at most 1.03. Start-up counts: of a Python process for the command, of the runner's workers
for the jobs.
"""

import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from site_agent import own_folders
from site_agent.app.recordings import Recording, Study
from site_agent.datasets.synthetic.videos import write_blink_video
from site_agent.eyeblink.session import BlinkAnalysisSettings
from site_agent.jobs.analysing import analysis_request
from site_agent.jobs.folder import JobFolder
from site_agent.jobs.runner import run_jobs
from site_agent.training.ert import find_starter

_VIDEOS, _BROKEN = 60, 4
_CUT = 1
"""Is analysed as far as it goes."""


def main(repeats: int = 3, seconds: float = 5.0) -> None:
    """Print the times of every turn, and the median of their ratios."""
    model = find_starter(own_folders.cache_folder())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        videos = [folder / f"P{number}_s1.mp4" for number in range(_VIDEOS)]
        for number, video in enumerate(videos[:4]):
            write_blink_video(video, seconds=seconds, seed=number)
        contents = [video.read_bytes() for video in videos[:4]]
        for number, video in enumerate(videos):
            video.write_bytes(contents[number % 4])
        broken = (contents[0][: len(contents[0]) // 3], b"", b"no video", contents[0][:64])
        for video, content in zip(videos[:: _VIDEOS // _BROKEN], broken, strict=True):
            video.write_bytes(content)
        rows = [Recording(video.stem, str(video), landmarks=str(model)) for video in videos]
        ratios = []
        for turn in range(repeats):
            times_s = {}
            # The first one changes: the second one finds the files in memory.
            for way in (_by_batch, _by_jobs)[:: 1 if turn % 2 else -1]:
                study = Study("s", "s", str(folder / f"{way.__name__}{turn}"))
                study.write(rows)
                began_s = time.perf_counter()
                way(study)
                times_s[way] = time.perf_counter() - began_s
            ratios.append(times_s[_by_jobs] / times_s[_by_batch])
            print(f"batch {times_s[_by_batch]:.1f} s, jobs {times_s[_by_jobs]:.1f} s", flush=True)
    print(f"jobs take {statistics.median(ratios):.3f} times as long as blink batch")


def _by_batch(study: Study) -> None:
    command = ("-m", "cli", "blink", "batch", str(study.table), "-o", str(study.place), "-q")
    ended = subprocess.run([sys.executable, *command], check=False, capture_output=True)
    assert ended.returncode == 5, ended.stderr.decode()


def _by_jobs(study: Study) -> None:
    jobs = JobFolder(study.place / "jobs")
    sessions = study.sessions().values()
    asked = [
        jobs.add("analyse", s.name, analysis_request(s, study.place, BlinkAnalysisSettings())).id
        for s in sessions
    ]
    request = {"study": str(study.place)}
    jobs.add("study", "tables", request, after=asked, gathers=True)
    run_jobs(jobs, idle_s=0.0)
    states = Counter(view.state.state for view in jobs.views())
    failed = _BROKEN - _CUT
    assert states == {"done": _VIDEOS - failed + 1, "failed": failed}, states


if __name__ == "__main__":
    main(*(int(word) for word in sys.argv[1:]))
