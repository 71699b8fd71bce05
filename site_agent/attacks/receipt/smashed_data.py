"""The receipt of smashed data: how near attackers come to the eyes behind them.

The control of each attack is the same attack on smashed data that are the pictures themselves.
"""

import time
from collections.abc import Iterator
from pathlib import Path

from pool_server.wire.cards import AttackFinding
from site_agent.attacks import smashed
from site_agent.attacks.receipt.findings import mean_over_persons, share_of
from site_agent.attacks.receipt.networks import GazeSides
from site_agent.attacks.receipt.probing import ProbedReceipt, make_receipt, require_persons_apart
from site_agent.attacks.receipt.settings import SmashedProbeSettings
from site_agent.datasets.gaze.records import GazeSamples
from site_agent.networks.files import read_network
from site_agent.networks.modules import predict_gaze, to_module
from site_agent.split.cuts import find_cut
from site_agent.split.noise import SmashedNoise
from site_agent.split.parts import split_network


def probe_smashed_data(
    path: Path, probe: SmashedProbeSettings, sides: GazeSides, seed: int = 0
) -> ProbedReceipt:
    """Attack the smashed data of a site's images.

    `path`: The whole network. `sides`: The victims as `own`, and as `others` the persons that help
    the attacker.

    Raises `InvalidInputError`: a person or a picture is on both sides, or the network cannot be cut
    there.
    """
    require_persons_apart(sides)
    noise = SmashedNoise(probe.noise, probe.noise_level)
    settings = smashed.SmashedAttackSettings(
        passes=probe.passes, releases=probe.releases, seed=seed
    )
    started, network = time.monotonic(), read_network(path)
    module = to_module(network, str(path))
    cut = find_cut(network.metadata["architecture"], probe.cut)
    victims, shadow = sides.members, sides.others
    attacked = smashed.attack_smashed_data(
        split_network(network, cut).client, cut, shadow, victims, noise, settings=settings,
        estimate=lambda pictures, head: predict_gaze(module, pictures, head),
    )  # fmt: skip
    control = smashed.attack_pictures(shadow, victims, settings)
    receipt = make_receipt(
        path, "smashed-data", list(_findings(attacked, control, victims, settings.seed)),
        (victims.person, shadow.person), seed=settings.seed, started=started,
    )  # fmt: skip
    receipt.protection = (
        f"{noise.words(settings.releases).capitalize()}. The main server {cut.labels_seen}."
    )
    caption = "The eyes; what attackers A, B and C made of them; the mean eye of other persons"
    return ProbedReceipt(receipt, {caption: smashed.sheet_of(attacked)})


def _findings(
    attacked: smashed.AttackedPart, control: smashed.AttackedPart, victims: GazeSamples, seed: int
) -> Iterator[AttackFinding]:
    for attacker in smashed.ATTACKERS:
        inversion, best = attacked.results[attacker], control.results[attacker]
        yield AttackFinding(
            name=f"attacker {attacker}: gain over the mean eye",
            measure="1 minus the squared error over that of the mean eye of other persons",
            found=mean_over_persons(inversion.gain_of, victims.person, seed),
            chance=0.0,
            control=mean_over_persons(best.gain_of, victims.person, seed),
            note=f"structural similarity {inversion.ssim:.2f}; the network is "
            f"{inversion.gaze_error_deg:.1f} degrees off on these pictures",
            reveals="pictures",
        )
        if len(set(victims.person)) > 1:
            count = len(set(victims.person))
            yield AttackFinding(
                name=f"attacker {attacker}: persons found",
                measure="share of the persons that their pictures are nearest to",
                found=share_of(inversion.persons_found * count, count),
                chance=inversion.chance,
                control=share_of(best.persons_found * count, count),
                reveals="persons",
            )
