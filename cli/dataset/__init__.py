"""``poolctl dataset``: synthetic faces and videos, and whatever is done to annotations."""

from pathlib import Path
from typing import Annotated, Any

from cli.dataset import change, check, gaze
from cli.dataset.gaze import FirstPersonOption, GlassesOption, PersonCountOption, SeedOption
from cli.frame.addresses import count_words
from cli.frame.errors import UsageError
from cli.frame.existing_files import require_free
from cli.frame.options import Argument, FolderArgument, ForceOption, Option, command, group
from cli.frame.output import Invocation, Reply

_SizeOption = Annotated[str, Option("Size in pixels.", "WIDTHxHEIGHT")]

app = group("Check, convert, split and show annotations; draw synthetic faces and eyes.")


@command(
    app,
    "synth",
    "dataset synth faces/ --image-count 200",
    "dataset synth siteB/ --image-count 150 --seed 2 --first-person 50 --style infant-lab",
)
def synth(
    invocation: Invocation,
    folder: FolderArgument,
    *,
    image_count: Annotated[int, Option("Number of images.", min=1)] = 100,
    person_count: PersonCountOption = 50,
    first_person: FirstPersonOption = 0,
    seed: SeedOption = 0,
    size: _SizeOption = "320x320",
    style: Annotated[
        str, Option("Style of the images: mixed, adult-lab, infant-lab, ...")
    ] = "mixed",
    glasses_share: GlassesOption = 0.0,
    name: Annotated[str, Option("Name of the files.")] = "faces",
    force: ForceOption = False,
) -> Reply:
    """Draw an annotated data set of synthetic faces.

    Every face has an exact box and 68 exact landmarks; 'poolctl dataset preview' draws them.
    """
    from site_agent.datasets.synthetic.sites import face_dataset_files, write_face_dataset

    named: dict[str, Any] = {"persons": person_count, "first_person": first_person, "name": name}
    for file in face_dataset_files(folder, image_count, **named):
        require_free(file, force=force)
    with invocation.progress("draw faces") as report:
        xml = write_face_dataset(
            folder,
            image_count,
            **named,
            seed=seed,
            image_size=_size(size),
            style=style,
            glasses=glasses_share,
            progress=report,
        )
    data = {"dataset": xml, "images": image_count}
    return Reply(data, f"{xml}  ({count_words(image_count, 'image')})", [str(xml)])


@command(
    app,
    "video",
    "dataset video session.mp4 --seconds 30",
    "dataset video vfr.mp4 --frame-rate-hz 60 --variable-frame-rate --seed 7",
    "dataset video conditioned.mp4 --conditioning 20 --frame-rate-hz 60",
)
def video(
    invocation: Invocation,
    path: Annotated[Path, Argument("The file to write.", "VIDEO.mp4")],
    *,
    seconds: Annotated[float | None, Option("Length in seconds. Default: 20.", min=0.1)] = None,
    conditioning: Annotated[
        int | None,
        Option(
            "Draw a session of conditioning with so many trials (6 to 9 s each).", "TRIALS", min=1
        ),
    ] = None,
    frame_rate_hz: Annotated[float, Option("", min=1, max=1000)] = 30.0,
    seed: Annotated[int, Option("Seed of the person, the blinks and the noise.", min=0)] = 0,
    size: _SizeOption = "640x480",
    variable_frame_rate: Annotated[bool, Option("Vary the intervals between frames.")] = False,
    lost_frames: Annotated[
        float, Option("Share of frames that the camera drops.", min=0, max=0.5)
    ] = 0.0,
    force: ForceOption = False,
) -> Reply:
    """Draw a video of a blinking person, with a truth file beside it.

    VIDEO_truth.csv has the eyelid closure of every frame, VIDEO_truth.json the blinks. With
    --conditioning the person learns to blink before an air puff: VIDEO_trials.csv has the trials
    for 'poolctl blink --trials', and VIDEO_truth.json the responses with their onsets.
    """
    from site_agent.datasets.synthetic import videos as synthetic

    if conditioning is not None and seconds is not None:
        raise UsageError("--conditioning is as long as its trials take: leave --seconds out")
    # A list of trials of this name may be that of a recording: it is found by its name.
    lists = [] if conditioning is None else [synthetic.trials_file(path)]
    for file in (path, *synthetic.truth_files(path), *lists):
        require_free(file, force=force)
    common: dict[str, Any] = {
        "frame_rate_hz": frame_rate_hz,
        "seed": seed,
        "variable_frame_rate": variable_frame_rate,
        "lost_frames": lost_frames,
        "size": _size(size),
    }
    with invocation.progress("draw video") as report:
        if conditioning is not None:
            drawn = synthetic.write_conditioning_video(
                path, conditioning, **common, progress=report
            )
            data = {"video": path, "truth": drawn.truth, "seconds": drawn.seconds}
            shown = [f"{path}  ({drawn.seconds:.1f} s, {count_words(conditioning, 'trial')})"]
            shown += [f"trials {drawn.trials}", f"truth {drawn.truth}, {drawn.frames}"]
            return Reply({**data, "trials": drawn.trials}, shown, [str(path)])
        seconds = seconds or 20.0
        truth = synthetic.write_blink_video(path, seconds=seconds, **common, progress=report)
    data = {"video": path, "truth": truth, "seconds": seconds}
    return Reply(data, [f"{path}  ({seconds:g} s)", f"truth {truth}"], [str(path)])


def _size(text: str) -> tuple[int, int]:
    words = text.lower().split("x")
    if len(words) != 2 or not all(word.strip().isdigit() for word in words):
        raise UsageError(f"--size {text!r}: expected WIDTHxHEIGHT, for example 640x480")
    return int(words[0]), int(words[1])


app.add_typer(gaze.app)
app.add_typer(check.app)
app.add_typer(change.app)
