"""DualView on one leak of a privacy study: pictures and gaze distributions with their scores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from site_agent.attacks import Leak, predict_from_updates, reidentify
from site_agent.attacks.dualview import (
    GazeGrid,
    InversionSettings,
    Victims,
    infer_densities,
    kl_divergence,
    nearest_public,
    psnr,
    reconstruct,
    ssim,
)
from site_agent.attacks.leaks import ALL_SITES, LeakedRound
from site_agent.datasets.gaze import GazeSamples, angular_errors_deg

if TYPE_CHECKING:
    from site_agent.studies.privacy.running import Federation


def attack_by_dualview(held: Federation, leak: Leak) -> tuple[dict[str, Any], NDArray[np.uint8]]:
    """Return the scores of both views, and the pictures of the first."""
    pictures = _pictures(held, leak)
    others = [each.others for each in held.everyone.victims.values()]
    similar = held.embedding.similarities(pictures, others)
    found = reidentify(similar, held.sites, held.seed)
    shape = (len(pictures), pictures.shape[1], *pictures.shape[2:])
    nearest = np.array([nearest_public(own, held.public) for own in pictures]).reshape(shape)
    mean = np.broadcast_to(held.prior.decode(np.zeros((1, held.prior.components))), shape)
    scores = {
        "top_1": found.top_1,
        "matched": found.matched,
        "p_value": found.p_value,
        **_likeness(held, pictures, ""),
        **_likeness(held, nearest, "nearest public "),
        **_likeness(held, mean, "mean public "),
        **_second_view(held, leak),
    }
    return scores, pictures


def _pictures(held: Federation, leak: Leak) -> NDArray[np.uint8]:
    settings = InversionSettings(
        restarts=held.settings.restarts, steps=held.settings.steps, seed=held.seed
    )
    starts = np.zeros((len(held.sites), held.prior.components))
    if leak.rounds:
        codes = [
            held.prior.encode(each.trains.patches).mean(axis=0)
            for each in held.everyone.public.values()
        ]
        starts = predict_from_updates(leak, held.sites, held.shadow_networks, np.array(codes))
    return reconstruct(leak, Victims(held.sites, starts), held.prior, held.public, settings)


def _likeness(held: Federation, pictures: NDArray[np.uint8], prefix: str) -> dict[str, float]:
    """Return mean PSNR and SSIM against the true picture whose gaze is nearest."""
    asked = _asked_gaze(held.public, pictures.shape[1])
    noise, structure = [], []
    for own, person in zip(pictures, held.everyone.victims.values(), strict=True):
        for picture, gaze in zip(own, asked, strict=True):
            distance = np.square(person.trains.gaze - gaze).sum(axis=1)
            truth = person.trains.patches[distance.argmin()]
            noise.append(psnr(picture, truth))
            structure.append(ssim(picture, truth))
    return {f"{prefix}psnr": float(np.mean(noise)), f"{prefix}ssim": float(np.mean(structure))}


def _asked_gaze(public: GazeSamples, count: int) -> NDArray[np.float64]:
    """Return the gaze of the pictures that `reconstruct` makes."""
    spread = np.argsort(public.gaze[:, 0], kind="stable")
    ranks = (np.arange(count) + 0.5) / count * len(spread)
    asked: NDArray[np.float64] = public.gaze[spread[ranks.astype(int)]]
    return asked


def _second_view(held: Federation, leak: Leak) -> dict[str, float]:
    """Return the divergence from the true distributions, and the error of their means."""
    grid = GazeGrid()
    public = held.everyone.public
    densities = np.array([grid.density(each.trains.gaze) for each in public.values()])
    truths = [each.trains.gaze for each in held.everyone.victims.values()]
    if not leak.rounds:
        inferred = np.repeat(densities.mean(axis=0)[None], len(truths), axis=0)
    else:
        losses, gaze = held.public_losses, held.public.gaze
        first = Leak(leak.name, (LeakedRound(held.base, leak.rounds[0].after),))
        shadow = Leak("shadow", (LeakedRound(held.base, held.shadow_networks),))
        seen, known = losses.of_leak(first), losses.of_leak(shadow)
        found = infer_densities(
            grid.changes(seen.gains, gaze), grid.changes(known.gains, gaze), densities, held.seed
        )
        place = [seen.sites.index(s if s in seen.sites else ALL_SITES) for s in held.sites]
        inferred = found[place]
    centres = np.array([own @ grid.centres for own in inferred])
    true_centres = np.array([own.mean(axis=0) for own in truths])
    return {
        "mae_deg": float(angular_errors_deg(centres, true_centres).mean()),
        "kl": float(
            np.mean(
                [
                    kl_divergence(grid.density(own), guess)
                    for own, guess in zip(truths, inferred, strict=True)
                ]
            )
        ),
    }
