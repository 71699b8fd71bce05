"""The receipt of smashed data: how near attackers come to the eyes behind them.

The control of each attack is the same attack on smashed data that are the pictures themselves.
"""

from collections.abc import Iterator, Mapping

from aggregators.models import StateDict
from pool_server.wire.cards import AttackFinding
from site_agent.attacks import smashed
from site_agent.attacks.receipt import SmashedProbeSettings
from site_agent.attacks.receipt.networks import GazeSides
from site_agent.attacks.table import Attack, MeanOverPersons, Scores, Share, Trial
from site_agent.networks.modules import predict_gaze, to_module
from site_agent.split.noise import SmashedNoise
from site_agent.split.parts import split_network
from site_agent.split.plan import find_cut


def attack_release(
    network: StateDict, release: SmashedProbeSettings, sides: GazeSides, seed: int
) -> tuple[Iterator[AttackFinding], Mapping[str, bytes], str]:
    """Attack the smashed data of a site's images; the other persons help the attackers.

    Returns
    -------
    (findings, pictures, protection)
        Pictures are PNG files by their captions.

    Raises `InvalidInputError`: the network cannot be cut there.
    """
    noise = SmashedNoise(release.noise_level, release.noise_scale)
    settings = smashed.SmashedAttackSettings(
        passes=release.passes, releases=release.releases, seed=seed
    )
    module = to_module(network)
    cut = find_cut(network.metadata["architecture"], release.cut)
    victims, shadow = sides.members, sides.others
    attacked = smashed.attack_smashed_data(
        split_network(network, cut).client, cut, shadow, victims, noise, settings=settings,
        estimate=lambda pictures, head: predict_gaze(module, pictures, head),
    )  # fmt: skip
    protection = (
        f"{noise.words(settings.releases).capitalize()}. The main server {cut.labels_seen}."
    )
    caption = "The eyes; what attackers A, B and C made of them; the mean eye of other persons"
    findings = Trial(attacked, seed).judge(ATTACKS)
    return findings, {caption: smashed.sheet_of(attacked)}, protection


def _show_pictures(attacked: smashed.AttackedPart) -> smashed.AttackedPart:
    return smashed.attack_pictures(attacked.shadow, attacked.victims, attacked.settings)


def _gain(attacked: smashed.AttackedPart) -> Scores:
    return {
        _GAIN.format(attacker): MeanOverPersons(inversion.gain_of, attacked.victims.person)
        for attacker, inversion in attacked.results.items()
    }


def _persons_found(attacked: smashed.AttackedPart) -> Scores:
    count = len(set(attacked.victims.person))
    return {
        f"attacker {attacker}: persons found": Share(inversion.persons_found * count, count)
        for attacker, inversion in attacked.results.items()
        if count >= smashed.FEWEST_PERSONS
    }


def _gain_note(attacked: smashed.AttackedPart, name: str) -> str:
    inversion = attacked.results[next(a for a in smashed.ATTACKERS if name == _GAIN.format(a))]
    return (
        f"structural similarity {inversion.ssim:.2f}; the network is "
        f"{inversion.gaze_error_deg:.1f} degrees off on these pictures"
    )


_GAIN = "attacker {}: gain over the mean eye"
ATTACKS: tuple[Attack[smashed.AttackedPart], ...] = (
    Attack(
        name=_GAIN.format("A, B, C"), needs="pictures of others; C the client part", score=_gain,
        measure="1 minus the squared error over that of the mean eye of other persons",
        chance=0.0, control=_show_pictures, reveals="pictures", note=_gain_note,
    ),
    Attack(
        name="attacker A, B, C: persons found",
        needs="the same, and pictures of 8 candidates or more",
        score=_persons_found, measure="share of the persons that their pictures are nearest to",
        chance=lambda attacked, _: 1 / len(set(attacked.victims.person)), control=_show_pictures,
        reveals="persons",
    ),
)  # fmt: skip
