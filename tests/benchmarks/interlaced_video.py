"""The loss by interlaced video: closures and blinks of drawn sessions at 60/s.

    python -m tests.benchmarks.interlaced_video [--sessions 3] [--seconds 30]

The same session as 60 pictures a second, woven into 30 interlaced pictures with fields as frames,
and the same pictures taken whole. Printed are the mean error of the closure, 0 to 1, against the
drawn lids, all and while they move, and the numbers of blinks.
"""

import argparse
import json
import tempfile
from contextlib import closing
from fractions import Fraction
from pathlib import Path

import av
import numpy as np

from site_agent import own_folders
from site_agent.datasets.synthetic.videos import write_blink_video
from site_agent.eyeblink.pipeline import run_blink_analysis
from site_agent.eyeblink.video.recording import Recording
from site_agent.pictures.video_reading import VideoReader
from site_agent.text_tables import read_table
from site_agent.training.ert import find_starter

RATE_HZ = 60
_MOVING = 0.02
"""Change of the closure between two frames of lids that move."""


def weave(source: Path, target: Path) -> None:
    """Write the pictures of a video as fields, two to a picture."""
    marks = av.filter.Graph()
    with closing(VideoReader(source, pixels="rgb")) as reader, av.open(str(target), "w") as out:
        width, height = reader.info.width_px, reader.info.height_px
        options = {"flags": "+ildct+ilme", "crf": "16"}
        stream = out.add_stream("libx264", rate=Fraction(RATE_HZ, 2), options=options)
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        ticks = Fraction(2, RATE_HZ)
        marks.link_nodes(
            marks.add_buffer(width=width, height=height, format="yuv420p", time_base=ticks),
            marks.add("setfield", "tff"),
            marks.add("buffersink"),
        ).configure()
        pictures = [frame.image for frame in reader.frames()]
        for number, (top, bottom) in enumerate(zip(pictures[::2], pictures[1::2], strict=False)):
            woven = top.copy()
            woven[1::2] = bottom[1::2]
            frame = av.VideoFrame.from_ndarray(woven, format="rgb24").reformat(format="yuv420p")
            frame.pts, frame.time_base = number, ticks
            marks.push(frame)
            out.mux(stream.encode(marks.pull()))
        out.mux(stream.encode(None))


def measure(recording: Recording, truth: Path, model: Path, out: Path) -> tuple[float, ...]:
    """Return the mean errors of the closure, and how many blinks were count and drawn."""
    session = run_blink_analysis(recording, out_dir=out, landmarks=model)
    table, drawn = read_table(out / "frames.csv"), read_table(truth.with_suffix(".csv"))
    lids, drawn_s = drawn.numbers("closure"), drawn.times_s()
    times_s = table.times_s()
    error = np.abs(np.clip(table.numbers("fec"), 0, 1) - np.interp(times_s, drawn_s, lids))
    moving = np.interp(times_s, drawn_s, np.abs(np.gradient(lids))) > _MOVING
    blinks = json.loads(truth.read_text(encoding="utf-8"))["blinks"]
    errors = float(np.nanmean(error)), float(np.nanmean(error[moving]))
    return (*errors, session.blinks, len(blinks))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sessions", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=30.0)
    chosen = parser.parse_args()
    model = find_starter(own_folders.cache_folder())
    print(f"{'':28}{'closure error':>14}{'moving lids':>13}{'blinks':>8}{'drawn':>7}")
    for seed in range(chosen.sessions):
        with tempfile.TemporaryDirectory() as folder:
            full, woven = Path(folder, "full.mp4"), Path(folder, "woven.mp4")
            truth = write_blink_video(full, chosen.seconds, RATE_HZ, seed=100 + seed)
            weave(full, woven)
            for name, recording in (
                ("60 pictures a second", Recording(full)),
                ("interlaced, fields", Recording(woven)),
                ("interlaced, whole pictures", Recording(woven, frame_rate_hz=RATE_HZ / 2)),
            ):
                error, moving, count, drawn = measure(
                    recording, truth, model, Path(folder, name.replace(" ", "-"))
                )
                print(f"{name:28}{error:14.3f}{moving:13.3f}{count:8.0f}{drawn:7.0f}", flush=True)


if __name__ == "__main__":
    main()
