"""``poolctl split``: networks with their first stages at the sites.

Cuts and costs are here; the processes of a training are in `live`.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cli.frame.addresses import model_file
from cli.frame.existing_files import require_free
from cli.frame.options import Argument, ForceOption, Option, command, group, single
from cli.frame.output import Invocation, Reply, TableText
from cli.privacy import write_receipt
from cli.split import live
from cli.split.live import ArchitectureOption, CutOption, NoiseLevelOption, NoiseOption, PlanOptions
from cli.vision.gaze import read_gaze_samples

if TYPE_CHECKING:
    from site_agent.split.cuts import CutSize

attack_app = single()

_SitesOption = Annotated[int, Option("Number of sites.", "N", min=1)]


@command(
    attack_app,
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
    client part. A gain of 0 is as good as the mean eye, 1 is the eye itself. Each attack is
    compared with its control, the same on the pictures themselves. FOLDER gets receipt.json and
    receipt.html with the eyes, each attacker's pictures and the mean eye.
    """
    from site_agent.attacks.receipt.networks import GazeSides
    from site_agent.attacks.receipt.smashed_data import probe_smashed_data
    from site_agent.attacks.smashed import SmashedAttackSettings
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
        probed = probe_smashed_data(
            place, cut, SmashedNoise(noise, noise_level), sides,
            SmashedAttackSettings(passes=passes, releases=releases, seed=seed),
        )  # fmt: skip
    return write_receipt(probed, files, place.name)


app = group("Train a network in two parts: the first at the sites, the rest at a server.")
app.add_typer(live.app)
app.add_typer(attack_app)


@command(app, "cuts", "split cuts", "split cuts --architecture gaze-resnet18")
def cuts(
    _invocation: Invocation,
    *,
    architecture: Annotated[str, Option("Only of this architecture. Default: all.", "NAME")] = "",
) -> Reply:
    """List the cuts of networks, and the client's share of each.

    The smashed data are the output of the client part for an image; the server gets them.
    """
    from site_agent.networks.architectures import find_architecture
    from site_agent.split.cuts import CUTS, size_of

    if architecture:
        find_architecture(architecture)
    listed = [
        (cut, size_of(cut))
        for name, of_one in CUTS.items()
        for cut in of_one
        if architecture in ("", name)
    ]
    rows = [
        [
            cut.architecture,
            cut.name,
            f"{size.client_parameters:,}",
            f"{size.client_share:.1%}",
            _floats(size),
            cut.meaning,
        ]
        for cut, size in listed
    ]
    columns = ["architecture", "cut", "client parameters", "client work", "floats", "client has"]
    facts = [{"cut": cut, "size": size} for cut, size in listed]
    return Reply({"items": facts}, TableText(columns, rows), [f"{row[0]}/{row[1]}" for row in rows])


def _floats(size: "CutSize") -> str:
    from math import prod

    first = f"{prod(size.smashed):,}"
    return f"{first} and {prod(size.returned):,}" if size.returned else first


@command(
    app,
    "cost",
    "split cost",
    "split cost --architecture gaze-lenet --cut u --sites 5 --images-each 400 --rounds 5",
)
def cost(
    _invocation: Invocation,
    *,
    architecture: ArchitectureOption = "gaze-lenet-wide",
    cut: CutOption = "pool1",
    sites: _SitesOption = 14,
    images_each: Annotated[int, Option("Images of each site.", min=1)] = 3000,
    rounds: Annotated[int, Option("Number of rounds.", min=1)] = 10,
    epochs: Annotated[int, Option("Passes of a site in a round.", min=1)] = 1,
) -> Reply:
    """Compare the traffic of a training with FedAvg and with the images themselves.

    The defaults are those of the thesis. Bytes are those of tensors, both directions together.
    """
    from site_agent.split.cuts import IMAGE_BYTES, find_cut, frozen_traffic, size_of, traffic_of

    chosen = find_cut(architecture, cut)
    samples = {f"site-{number}": images_each for number in range(sites)}
    moved = traffic_of(chosen, samples, rounds=rounds, epochs=dict.fromkeys(samples, epochs))
    size, frozen = size_of(chosen), frozen_traffic(chosen, samples)
    once = 2 * size.floats * 4
    ratio = moved.split / moved.fedavg
    verdict = (
        f"V1 and V2 move {_amount(moved.split)}, FedAvg {_amount(moved.fedavg)}: "
        + (f"{ratio:.1f} times as much" if ratio >= 1 else f"{1 / ratio:.1f} times less")
        + f";\n{once:,} bytes for an image and pass, which has {IMAGE_BYTES:,} bytes itself"
    )
    rows = [
        ["V1, V2: smashed data and gradients", _amount(moved.steps)],
        ["V1, V2: client parts", _amount(moved.parts)],
        ["frozen-client, mean-smashed: smashed data, once", _amount(frozen)],
        ["predicting each image once", _amount(moved.predictions)],
        ["FedAvg: whole networks", _amount(moved.fedavg)],
        ["the images themselves", _amount(moved.raw)],
        ["MPC inference, an image: multiplications", f"{size.multiplications:,}"],
        ["MPC inference, an image: comparisons", f"{size.comparisons:,}"],
    ]
    mpc = (
        "MPC inference is not offered: two parties of the thesis took 54 s an image, and 2 h\n"
        "45 min with the preparation of 17.8 million triples"
    )
    facts = {
        "cut": chosen,
        "size": size,
        "traffic_bytes": moved,
        "split_bytes": moved.split,
        "frozen_bytes": frozen,
        "times_fedavg": ratio,
    }
    return Reply(
        facts, [verdict, TableText(["what moves", "amount"], rows), mpc], [str(moved.split)]
    )


@command(
    app,
    "privacy",
    "split privacy --noise-level 0.5",
    "split privacy --option dp_epsilon=8 --dp-covers whole --sites 5 --images-each 400",
)
def privacy(
    _invocation: Invocation,
    *,
    plan: PlanOptions,
    sites: _SitesOption = 14,
    images_each: Annotated[int, Option("Images of each site.", min=2)] = 3000,
    persons_each: Annotated[int, Option("Persons of each site.", min=1)] = 1,
) -> Reply:
    """Show the protection of a planned training: each epsilon, and the data it covers.

    The options are those of 'split provision'.
    """
    from site_agent.split.noise import PIXELS, SmashedNoise
    from site_agent.split.private_steps import describe_protection
    from site_agent.split.rounds_folder import releases_of

    chosen = plan.plan()
    units = persons_each if chosen.dp_covers == "person" else images_each
    weights = describe_protection(chosen, sites=sites, units=units)
    releases = releases_of(chosen)
    noise = SmashedNoise(chosen.noise, chosen.noise_level)
    pixel = noise.epsilon(releases)
    count = f"Each image's smashed data reach the main server {releases} times"
    bound = f"{noise.level:g} sensitivities" if noise.level else "no noise"
    verdict = f"No epsilon covers an image as a whole against the main server:\n{count}, {bound}."
    rows: list[list[str]] = [
        ["smashed data", _number(pixel), "one pixel by one deviation of its image, all releases"],
        ["smashed data", _number(pixel * PIXELS if pixel else None), "all pixels: obfuscation"],
        ["weights", _number(weights.epsilon), weights.covers],
    ]
    facts: dict[str, Any] = {
        "releases": releases, "pixel_epsilon": pixel, "weights": weights, "plan": chosen,
    }  # fmt: skip
    text: list[str | TableText] = [verdict]
    text += [TableText(["what leaves", "epsilon", "covers"], rows), *weights.notes]
    return Reply(facts, text, [_number(weights.epsilon)])


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:g}"


def _amount(count: int) -> str:
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.2f} MB"
