"""``poolctl split attack``: what the main server of a split training could see."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from cli.frame.addresses import model_file
from cli.frame.errors import InputMissingError
from cli.frame.existing_files import require_free
from cli.frame.options import ForceOption, command, single
from cli.frame.output import Invocation, Reply, TableText

if TYPE_CHECKING:
    from site_agent.datasets.gaze import GazeSamples

app = single()

_RESULTS = "inversion.json"


@command(
    app,
    "attack",
    examples=[
        "split attack gaze.safetensors --data mine/ --reference public/ -o attack/",
        "split attack gaze.safetensors --data mine/ --reference public/ --noise-level 0.5 "
        "--noise-level 2 -o attack/",
    ],
)
def attack(
    invocation: Invocation,
    network: Annotated[
        str, typer.Argument(metavar="FILE|ADDRESS", help="The whole network.", show_default=False)
    ],
    *,
    data: Annotated[Path, typer.Option(metavar="DATA", help="Gaze data of the victims: yours.")],
    reference: Annotated[
        Path,
        typer.Option(metavar="DATA", help="Gaze data of other persons that help the attacker."),
    ],
    cut: Annotated[
        str, typer.Option(metavar="NAME", help="Where the network is cut ('split cuts').")
    ] = "pool1",
    noise: Annotated[
        Literal["laplace", "gaussian"], typer.Option(help="On smashed data, with --noise-level.")
    ] = "laplace",
    noise_level: Annotated[
        Sequence[float],
        typer.Option(help="Noise in units of the sensitivity; repeatable. Default: none."),
    ] = (),
    releases: Annotated[
        int, typer.Option(min=1, help="How often an image's smashed data are sent.")
    ] = 10,
    passes: Annotated[int, typer.Option(min=1, help="Passes of the attackers' training.")] = 12,
    seed: Annotated[int, typer.Option(min=0, help="Of noise and decoders.")] = 0,
    output: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder for sheets and scores.")],
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
