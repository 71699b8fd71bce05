"""``poolctl split attack``: what the main server of a split training could see."""

from pathlib import Path
from typing import Annotated

from cli.frame.addresses import model_file
from cli.frame.existing_files import require_free
from cli.frame.options import Argument, ForceOption, Option, command, single
from cli.frame.output import Invocation, Reply
from cli.privacy import write_receipt
from cli.split.live import CutOption, NoiseLevelOption, NoiseOption
from cli.vision.gaze import read_gaze_samples

app = single()


@command(
    app,
    "attack",
    "split attack gaze.safetensors --data mine/ --reference public/ -o receipt/",
    "split attack gaze.safetensors --data mine/ --reference public/ --noise-level 1 -o noisy/",
)
def attack(
    invocation: Invocation,
    network: Annotated[str, Argument("The whole network.", "FILE|ADDRESS")],
    *,
    data: Annotated[Path, Option("Gaze data of the victims: yours.", "DATA")],
    reference: Annotated[
        Path, Option("Gaze data of other persons that help the attacker.", "DATA")
    ],
    cut: CutOption = "pool1",
    noise: NoiseOption = "laplace",
    noise_level: NoiseLevelOption = 0.0,
    releases: Annotated[int, Option("How often an image's smashed data are sent.", min=1)] = 10,
    passes: Annotated[int, Option("Passes of the attackers' training.", min=1)] = 8,
    seed: Annotated[int, Option("Of noise, decoders and intervals.", min=0)] = 0,
    output: Annotated[Path, Option("Folder for the receipt.", "FOLDER")],
    force: ForceOption = False,
) -> Reply:
    """Turn smashed data back into eyes, and write a privacy receipt of it.

    Attacker A fits a decoder to other persons, B gives it the mean of all releases, C knows the
    client part. A gain of 0 is as good as the mean eye, 1 is the eye itself. Each attack stands
    beside its control, the same on the pictures themselves. FOLDER gets receipt.json and
    receipt.html with the eyes, each attacker's pictures and the mean eye.
    """
    from site_agent.attacks.receipt import GazeSides
    from site_agent.attacks.receipt.smashed_data import probe_smashed_data
    from site_agent.attacks.smashed import InversionSettings
    from site_agent.split.noise import SmashedNoise

    files = {name: output / f"receipt.{name}" for name in ("json", "html")}
    for path in files.values():
        require_free(path, force=force)
    place = model_file(invocation, network).path
    sides = GazeSides(
        *(read_gaze_samples(invocation, [path], "", "")[0] for path in (data, reference))
    )
    with invocation.progress("attack") as report:
        report(None, "three attackers")
        done = probe_smashed_data(
            place, cut, SmashedNoise(noise, noise_level), sides,
            InversionSettings(passes=passes, releases=releases, seed=seed),
        )  # fmt: skip
    return write_receipt(done, files, place.name)
