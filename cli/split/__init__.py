"""``poolctl split``: networks with their first stages at the sites.

Cuts and costs are here; the processes of a training are in `live`.
"""

from math import prod
from typing import TYPE_CHECKING, Any

from pydantic import Field

from cli.frame.options import command, group
from cli.frame.output import Invocation, Reply, TableText
from cli.frame.settings_options import CommandSettings, SettingsOptions
from cli.split import live
from site_agent.split.plan import CUTS, SplitPlan, find_cut

if TYPE_CHECKING:
    from site_agent.split.parts import CutSize

_Described = tuple[dict[str, Any], list[str | TableText]]


app = group("Train a network in two parts: the first at the sites, the rest at a server.")
app.add_typer(live.app)


class PlannedTraining(SplitPlan):
    """A training before it begins: its plan, and the data of its sites."""

    sites: int = Field(default=14, ge=1)
    """Number of sites."""
    images: int = Field(default=3000, ge=2)
    """Images of each site."""
    persons: int = Field(default=1, ge=1)
    """Persons of each site."""


PLANNED_SETTINGS = CommandSettings(PlannedTraining(), live.PLAN_SETTINGS.leave_out)


@command(
    app,
    "plan",
    "split plan --set architecture=gaze-lenet-wide --set sites=14",
    "split plan --set noise_level=0.5 --set dp_epsilon=8 --set dp_covers=whole --set images=400",
)
def show_plan(_invocation: Invocation, *, settings: SettingsOptions) -> Reply:
    """Show the traffic and the protection of a training before it begins, and the possible cuts.

    Traffic is compared with FedAvg and with the images themselves, in bytes of tensors, both
    directions together. Each epsilon stands with the data it covers. The settings are those of
    'split provision', and the sites' data; 'poolctl settings split plan' explains them. The smashed
    data are the output of the client part for an image, and the server gets them.
    """
    plan = PLANNED_SETTINGS.read(settings)
    traffic, traffic_text = _describe_cost(plan)
    protection, protection_text = _describe_protection(plan)
    cuts, table = _list_cuts(plan.architecture)
    text = [*traffic_text, *protection_text, table]
    return Reply(traffic | protection | {"cuts": cuts}, text, [str(traffic["split_bytes"])])


def _list_cuts(architecture: str) -> tuple[list[dict[str, Any]], TableText]:
    from site_agent.split.parts import size_of

    sizes = [(cut, size_of(cut)) for cut in CUTS[architecture]]
    rows = [
        [
            cut.name,
            f"{size.client_parameters:,}",
            f"{size.client_share:.1%}",
            _floats(size),
            cut.meaning,
        ]
        for cut, size in sizes
    ]
    columns = ["cut", "client parameters", "client work", "floats", "client has"]
    return [{"cut": cut, "size": size} for cut, size in sizes], TableText(columns, rows)


def _floats(size: "CutSize") -> str:
    first = f"{prod(size.smashed):,}"
    return f"{first} and {prod(size.returned):,}" if size.returned else first


def _describe_cost(plan: PlannedTraining) -> _Described:
    from site_agent.split.parts import IMAGE_BYTES, frozen_traffic, size_of, traffic_of

    chosen = find_cut(plan.architecture, plan.cut)
    samples = {f"site-{number}": plan.images for number in range(plan.sites)}
    epochs = dict.fromkeys(samples, plan.training.epochs)
    moved = traffic_of(chosen, samples, rounds=plan.rounds, epochs=epochs)
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
        ["frozen-client: smashed data, once", _amount(frozen)],
        # Shares are numbers of 8 bytes, those of smashed data of 4.
        ["mean-smashed: shares of smashed data", _amount(2 * frozen * plan.rounds)],
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
    return facts, [verdict, TableText(["what moves", "amount"], rows), mpc]


def _describe_protection(plan: PlannedTraining) -> _Described:
    from site_agent.split.noise import PIXELS, SmashedNoise
    from site_agent.split.private_steps import describe_protection
    from site_agent.split.rounds_folder import releases_of

    units = plan.persons if plan.dp_covers == "person" else plan.images
    weights = describe_protection(plan, sites=plan.sites, units=units)
    releases = releases_of(plan)
    noise = SmashedNoise.of(plan)
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
        "releases": releases, "pixel_epsilon": pixel, "weights": weights, "plan": plan,
    }  # fmt: skip
    text: list[str | TableText] = [f"{verdict}\nThe server {plan.found_cut.labels_seen}."]
    text += [TableText(["what leaves", "epsilon", "covers"], rows), *weights.notes]
    return facts, text


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:g}"


def _amount(count: int) -> str:
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.2f} MB"
