"""Gain of a laboratory's eye model by the frames that its reviewers chose.

    python -m tests.benchmarks.blink_learning [--persons 4] [--frames 15] [--seconds 25]

Persons with thick rims are filmed; the model is a starter that has seen no glasses. A drawn
reviewer accepts, corrects and adds all blinks, and chooses frames spread over open and shut lids,
with their true landmarks. Each session is left out once.
"""

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from site_agent.datasets.imglab_xml import read_imglab_xml
from site_agent.datasets.synthetic.eyes import Blink
from site_agent.datasets.synthetic.sites import write_face_dataset
from site_agent.eyeblink.pipeline import run_blink_analysis
from site_agent.eyeblink.records import Float64
from site_agent.eyeblink.review.actions import Add, Delete, UseFrame
from site_agent.eyeblink.review.review_session import open_review
from site_agent.pictures.video import write_video
from site_agent.tasks.learning import learn_from_reviews
from site_agent.training.ert import settings_for_blinks, train_ert
from tests.benchmarks.blinks_with_glasses import RATE_HZ, STRENGTHS, drawn_session, put_on


def filmed(
    folder: Path, who: int, seconds: float, model: Path
) -> tuple[Path, list[Blink], list[Float64]]:
    """Film and analyse a person with thick rims."""
    blinks, frames = drawn_session(who, seconds)
    glasses = STRENGTHS["thick rim"]
    assert glasses is not None
    video = folder / f"person-{who}.mp4"
    pictures = (
        (number / RATE_HZ, put_on(picture, landmarks, glasses))
        for number, (picture, landmarks) in enumerate(frames)
    )
    write_video(video, pictures, RATE_HZ, quality_crf=18)
    run_blink_analysis(video, out_dir=folder / f"person-{who}", landmarks=model)
    return folder / f"person-{who}", blinks, [landmarks for _, landmarks in frames]


def review(place: Path, blinks: Sequence[Blink], landmarks: Sequence[Float64], count: int) -> None:
    """Review with knowledge of the truth."""
    with open_review(place) as opened:
        for event in opened.result.events:
            opened.act(Delete(blink_id=event.blink_id))
        for blink in blinks:
            opened.act(Add(onset_s=blink.onset_s, peak_s=blink.peak_s, offset_s=blink.offset_s))
        shut = [round(blink.peak_s * RATE_HZ) for blink in blinks[: count // 3]]
        spread = np.linspace(0, len(landmarks) - 1, count - len(shut)).round().astype(int)
        for frame in sorted({*shut, *spread.tolist()}):
            points = tuple((float(x), float(y)) for x, y in landmarks[frame][36:48])
            opened.act(UseFrame(frame=frame, landmarks=points, moved=(0,)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--persons", type=int, default=4)
    parser.add_argument("--frames", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=25.0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="poolctl-benchmark-") as name:
        folder = Path(name)
        xml = write_face_dataset(folder / "faces", 250, 250, seed=21)
        starter = folder / "eyes.dat"
        settings = replace(settings_for_blinks(250), threads=2)
        train_ert(read_imglab_xml(xml), starter, settings, training_scores=False)
        places = []
        for who in range(arguments.persons):
            place, blinks, landmarks = filmed(folder, who, arguments.seconds, starter)
            review(place, blinks, landmarks, arguments.frames)
            places.append(place)
        learned = learn_from_reviews(places, starter, folder / "learned.dat")
        print(f"{learned.frames} frames of {len(learned.gains)} sessions")
        for gain in learned.gains:
            print(f"  left out {gain.place.name}: error {gain.errors}, F1 {gain.f1}")
        print(f"  mean: error {learned.mean_errors}, F1 {learned.mean_f1}")


if __name__ == "__main__":
    main()
