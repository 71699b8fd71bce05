"""``poolctl split attack``: what the main server of a split training could see."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cli.frame.addresses import model_file
from cli.frame.errors import InputMissingError
from cli.frame.existing_files import require_free
from cli.frame.options import Argument, ForceOption, Option, command, single
from cli.frame.output import Invocation, Reply, TableText

if TYPE_CHECKING:
    from site_agent.datasets.gaze import GazeSamples

app = single()

_RESULTS = "inversion.json"


@command(
    app,
    "attack",
    "split attack gaze.safetensors --data mine/ --reference public/ -o attack/",
    "split attack gaze.safetensors --data mine/ --reference public/ --noise-level 0.5 "
    "--noise-level 2 -o attack/",
)
def attack(
    invocation: Invocation,
    network: Annotated[str, Argument("The whole network.", "FILE|ADDRESS")],
    *,
    data: Annotated[Path, Option("Gaze data of the victims: yours.", "DATA")],
    reference: Annotated[
        Path, Option("Gaze data of other persons that help the attacker.", "DATA")
    ],
    cut: Annotated[str, Option("Where the network is cut ('split cuts').", "NAME")] = "pool1",
    noise: Annotated[
        Literal["laplace", "gaussian"], Option("On smashed data, with --noise-level.")
    ] = "laplace",
    noise_level: Annotated[
        Sequence[float], Option("Noise in units of the sensitivity; repeatable. Default: none.")
    ] = (),
    releases: Annotated[int, Option("How often an image's smashed data are sent.", min=1)] = 10,
    passes: Annotated[int, Option("Passes of the attackers' training.", min=1)] = 12,
    seed: Annotated[int, Option("Of noise and decoders.", min=0)] = 0,
    output: Annotated[Path, Option("Folder for sheets and scores.", "FOLDER")],
    force: ForceOption = False,
) -> Reply:
    """Turn smashed data back into eyes, and score what comes out.

    Attacker A trains a decoder on other persons, B gives it the mean of all releases, C knows the
    client part. A gain of 0 is as good as the mean picture, 1 is the picture itself. FOLDER gets
    the scores and a sheet for each noise: the eyes, each attacker's pictures, the mean picture.
    """
    from site_agent.attacks.smashed import InversionSettings, attack_smashed_data, write_sheet
    from site_agent.networks import predict_gaze, read_network, to_module
    from site_agent.runs.jobs import write_json
    from site_agent.split.cuts import find_cut, split_network
    from site_agent.split.noise import SmashedNoise

    results = output / _RESULTS
    require_free(results, force=force)
    whole = read_network(model_file(invocation, network).path)
    found = find_cut(whole.metadata.get("architecture", ""), cut)
    part, module = split_network(whole, found).client, to_module(whole)
    victims, shadow = _read(data), _read(reference)
    settings = InversionSettings(passes=passes, releases=releases, seed=seed)
    levels = list(noise_level) or [0.0]
    items: list[dict[str, Any]] = []
    sheets = []
    output.mkdir(parents=True, exist_ok=True)
    with invocation.progress("attack") as report:
        for number, level in enumerate(levels):
            report(number / len(levels), f"noise {level:g}")
            attacked = attack_smashed_data(
                part, found, shadow, victims, SmashedNoise(noise, level), settings=settings,
                estimate=lambda pictures, head: predict_gaze(module, pictures, head),
            )  # fmt: skip
            sheets.append(write_sheet(attacked, output / f"sheet-{level:g}.png"))
            ratio = attacked.signal_to_noise_db
            items += [
                {
                    "noise_level": level,
                    "signal_to_noise_db": None if level == 0 else ratio,
                    "attacker": name,
                    **each.facts(),
                }
                for name, each in attacked.results.items()
            ]
    write_json(results, {"items": items})
    columns = ["noise", "attacker", "gain", "MSE", "SSIM", "gaze (deg)", "persons", "chance"]
    names = ("gain", "mse", "ssim", "gaze_error_deg", "persons_found", "chance")
    rows = [
        [f"{item['noise_level']:g}", item["attacker"], *(_text(item[name]) for name in names)]
        for item in items
    ]
    files = [results, *sheets]
    text: list[str | TableText] = [TableText(columns, rows), *(f"written {path}" for path in files)]
    return Reply({"items": items, "files": files}, text, [str(path) for path in files])


def _read(path: Path) -> GazeSamples:
    from site_agent.datasets.gaze import open_gaze

    if not path.exists():
        raise InputMissingError(f"{path}: no such folder")
    return open_gaze(path).read()


def _text(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"
