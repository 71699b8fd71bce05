"""Videos of a drawn person who is conditioned, with trials and responses that are known."""

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from site_agent.datasets.synthetic import canvas, conditioning, videos
from site_agent.errors import SyntheticFaceError
from site_agent.tables import Table, columns_of

TRIALS = Table("trials", columns_of(("trial", "trial_type", "cs_onset_s", "us_onset_s"), ".6f"))
# The lids are drawn at this rate, whatever the camera's is.
_CURVE_RATE_HZ = 1000.0


@dataclass(frozen=True)
class ConditioningVideo:
    """What was written.

    `trials` is what a laboratory would have, `frames` the closure and eye aspect ratios of every
    frame, `truth` the settings and what was drawn into each trial.
    """

    video: Path
    trials: Path
    frames: Path
    truth: Path
    seconds: float


def trials_file(path: Path) -> Path:
    """Return the list of trials that `write_conditioning_video` writes beside a video."""
    return path.with_name(f"{path.stem}_trials.csv")


def write_conditioning_video(
    path: Path | str,
    trials: int = 20,
    frame_rate_hz: float = 60.0,
    seed: int = 0,
    who: int | None = None,
    *,
    design: conditioning.ConditioningDesign | None = None,
    variable_frame_rate: bool = False,
    lost_frames: float = 0.0,
    size: tuple[int, int] = (640, 480),
    progress: Callable[[float, str], None] | None = None,
) -> ConditioningVideo:
    """Write a video of a session of eyeblink conditioning, with its truth files beside it.

    What happens in the session depends on `seed` and `design` only, not on the camera.

    Parameters
    ----------
    path : Path or str
        The video (mp4). Beside it come ``<stem>_trials.csv`` and the truth files.
    trials : int
        How many; the video is as long as they take (6 to 9 s each, unless `design` says
        otherwise).
    design : ConditioningDesign, optional
        What the session is like; `trials` counts, and noise is that of the picture.
    frame_rate_hz, seed, who, variable_frame_rate, lost_frames, size, progress
        As for `write_blink_video`.
    """
    path = Path(path)
    design = replace(design or conditioning.ConditioningDesign(), n_trials=trials, noise_fec=0.0)
    drawn = conditioning.draw_conditioning_session(seed, _CURVE_RATE_HZ, design)

    def closure(times_s: canvas.Float64) -> canvas.Float64:
        return np.interp(times_s, drawn.timestamps_s, np.clip(drawn.fec_true, 0.0, 1.0))

    seconds = float(drawn.timestamps_s[-1])
    truth = videos.write_blink_video(
        path,
        seconds,
        frame_rate_hz,
        seed,
        who,
        closure=closure,
        variable_frame_rate=variable_frame_rate,
        lost_frames=lost_frames,
        size=size,
        progress=progress,
    )
    listed = trials_file(path)
    try:
        TRIALS.write_csv(
            listed,
            (
                [trial.trial, trial.trial_type.value, trial.cs_onset_s, trial.us_onset_s]
                for trial in drawn.trials
            ),
        )
        content = json.loads(truth.read_text(encoding="utf-8")) | _described(drawn)
        text = json.dumps(content, indent=1, allow_nan=False)
        truth.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        where = error.filename or path
        raise SyntheticFaceError(f"{where} cannot be written: {error.strerror}") from error
    return ConditioningVideo(path, listed, truth.with_suffix(".csv"), truth, seconds)


def _described(drawn: conditioning.SyntheticConditioning) -> dict[str, Any]:
    trials = []
    for trial, truth in zip(drawn.trials, drawn.truth, strict=True):
        values = {
            name: None if isinstance(value, float) and math.isnan(value) else value
            for name, value in asdict(truth).items()
        }
        trials.append({"trial": trial.trial, "trial_type": str(trial.trial_type), **values})
    return {"trials": trials, "spontaneous_blinks_s": drawn.blinks_s.round(6).tolist()}
