"""``poolctl split``: networks with their first stages at the sites.

Cuts and costs are here; the processes of a training are in `live`.
"""

from math import prod
from typing import TYPE_CHECKING, Annotated, Any

from cli.frame.options import Option, command, group
from cli.frame.output import Invocation, Reply, TableText
from cli.split import live
from cli.split.live import PlanOptions
from site_agent.split.cuts import CUTS, find_cut

if TYPE_CHECKING:
    from site_agent.split.parts import CutSize
    from site_agent.split.plan import SplitPlan

_Described = tuple[dict[str, Any], list[str | TableText]]


app = group("Train a network in two parts: the first at the sites, the rest at a server.")
app.add_typer(live.app)


@command(
    app,
    "plan",
    "split plan --architecture gaze-lenet-wide --site-count 14",
    "split plan --noise-level 0.5 --option dp_epsilon=8 --dp-covers whole --images-each 400",
    "split plan --cuts",
)
def show_plan(
    _invocation: Invocation,
    *,
    plan: PlanOptions,
    site_count: Annotated[int, Option("Number of sites.", min=1)] = 14,
    images_each: Annotated[int, Option("Images of each site.", min=2)] = 3000,
    persons_each: Annotated[int, Option("Persons of each site.", min=1)] = 1,
    cuts: Annotated[bool, Option("List the cuts of all networks instead.")] = False,
) -> Reply:
    """Show the traffic and the protection of a training before it begins.

    Traffic is compared with FedAvg and with the images themselves, in bytes of tensors, both
    directions together. Each epsilon stands with the data it covers. The options are those of
    'split provision'. --cuts lists the client's share of each network; the smashed data are the
    output of the client part for an image, and the server gets them.
    """
    if cuts:
        return _list_cuts()
    chosen = plan.plan()
    traffic, traffic_text = _describe_cost(chosen, site_count, images_each)
    units = persons_each if chosen.dp_covers == "person" else images_each
    protection, protection_text = _describe_protection(chosen, site_count, units)
    identifiers = [str(traffic["split_bytes"])]
    return Reply(traffic | protection, [*traffic_text, *protection_text], identifiers)


def _list_cuts() -> Reply:
    from site_agent.split.parts import size_of

    listed = [(cut, size_of(cut)) for of_one in CUTS.values() for cut in of_one]
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
    first = f"{prod(size.smashed):,}"
    return f"{first} and {prod(size.returned):,}" if size.returned else first


def _describe_cost(plan: "SplitPlan", sites: int, images_each: int) -> _Described:
    from site_agent.split.parts import IMAGE_BYTES, frozen_traffic, size_of, traffic_of

    chosen = find_cut(plan.architecture, plan.cut)
    samples = {f"site-{number}": images_each for number in range(sites)}
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
    return facts, [verdict, TableText(["what moves", "amount"], rows), mpc]


def _describe_protection(plan: "SplitPlan", sites: int, units: int) -> _Described:
    from site_agent.split.noise import PIXELS, SmashedNoise
    from site_agent.split.private_steps import describe_protection
    from site_agent.split.rounds_folder import releases_of

    weights = describe_protection(plan, sites=sites, units=units)
    releases = releases_of(plan)
    noise = SmashedNoise(plan.noise, plan.noise_level)
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
