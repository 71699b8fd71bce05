"""``poolctl dataset draw``: synthetic faces, eyes, clips, videos and trials."""

from pathlib import Path
from typing import Annotated, Literal

from cli.frame.existing_files import require_free
from cli.frame.options import Argument, ForceOption, command, single
from cli.frame.output import Invocation, Reply
from cli.frame.settings_options import CommandSettings, SettingsOptions

app = single()
Kind = Literal["faces", "eyes", "clips", "video", "trials"]


@command(
    app,
    "draw",
    "dataset draw faces siteB/ --set images=150 --set persons=50 --set style=infant-lab",
    "dataset draw eyes eyes/ --set persons=30 --set first_person=5 --set both_eyes=true",
    "dataset draw clips clips/ --set persons=5 --set heterogeneity=0",
    "dataset draw video session.mp4 --set seconds=30",
    "dataset draw video conditioned.mp4 --set trials=20 --set frame_rate_hz=60",
    "dataset draw trials all_trials.csv --set animals=6 --set groups=control,lesion --set seed=1",
)
def draw(
    invocation: Invocation,
    kind: Annotated[Kind, Argument("The kind of data.")],
    path: Annotated[Path, Argument("The folder, or the video, to write.", "PATH")],
    *,
    force: ForceOption = False,
    settings: SettingsOptions,
) -> Reply:
    """Draw a synthetic data set or video with known truth; equal settings give equal files.

    faces: images with exact boxes and 68 exact landmarks. eyes: patches with gaze angles, of
    persons with different looks, light, cameras, gaze, head pose and eyeballs. clips: videos of
    head-mounted cameras with the wearers' gaze, for a new folder. video: a blinking person with the
    eyelid closure of every frame and the blinks; with trials, a person learning to blink before
    an air puff, and the list of trials for 'poolctl blink --trials'. trials: a table of a study of
    learning animals for 'poolctl blink fit-together'. 'poolctl settings dataset draw
    KIND' lists all settings, 'poolctl dataset preview' shows faces.
    """
    from site_agent.datasets.synthetic.drawing import KINDS

    chosen = CommandSettings(KINDS[kind].settings).read(settings)
    for file in KINDS[kind].list_targets(path, chosen):
        require_free(file, force=force)
    with invocation.progress(f"draw {kind}") as report:
        drawn = KINDS[kind].draw(path, chosen, report)
    data = {"dataset": drawn.path, **drawn.counts, "files": drawn.files}
    counts = ", ".join(f"{count:g} {name}" for name, count in drawn.counts.items())
    lines = [f"{drawn.path}  ({counts})", *(f"{role} {file}" for role, file in drawn.files.items())]
    return Reply(data, lines, [str(drawn.path)])
