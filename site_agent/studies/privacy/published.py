"""The runs of the study of DualView as its paper has it, next to the inversion of `dualview`."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from site_agent.attacks import dualview, leaks
from site_agent.attacks.eye_gan import EyeGan, GanSettings, train_gan
from site_agent.datasets.gaze.records import PATCH_SHAPE, GazeSamples, angular_errors_deg
from site_agent.networks.modules import predict_gaze, to_module
from site_agent.studies.privacy.persons import load_persons
from site_agent.studies.privacy.probes import (
    Federation,
    hold_federation,
    judge_pictures,
    second_view,
)
from site_agent.studies.protocol_file import StepJob
from site_agent.work import Progress

_PRIORS, _DRAWN = ".study/priors", 200
_COMPONENTS = "components"
_SEEN = {"first round": slice(1), "last round": slice(-1, None), "all rounds": slice(None)}


@dataclass(frozen=True)
class _Variant:
    """An attack by the generator: the leak, the weights of its loss, the use of earlier rounds."""

    way: leaks.LeakName = "plain"
    prior: float = 10.0
    gaze: float = 6.0
    appearance: float = 4.0
    auxiliary: bool = True


_VARIANTS: Mapping[str, _Variant] = {
    "published": _Variant(),
    "without auxiliary": _Variant(auxiliary=False),
    "prior only": _Variant(gaze=0, appearance=0),
    "gaze only": _Variant(prior=0, appearance=0),
    "appearance only": _Variant(prior=0, gaze=0),
    "sums": _Variant(way="secure"),
}
"""The paper's weights are those of faces (section 4.2)."""


def train_prior(job: StepJob, progress: Progress) -> dict[str, float]:
    """Train the generator on the public persons; return how its pictures differ from theirs.

    ``spread`` and ``spread_of_eyes``: mean standard deviation of a pixel over pictures. ``gap``:
    of the critic's mean scores of eyes and of made pictures, in standard deviations of those of
    eyes.
    """
    public = load_persons(job.data).public.values()
    eyes = GazeSamples.join([person.trains for person in public]).patches
    chosen = GanSettings(steps=job.settings.gan_steps, seed=job.factors.seed)
    gan = train_gan(eyes, chosen, progress)
    gan.save(job.folder / f"{job.factors.seed}.pt")
    made, some = gan.draw(_DRAWN), eyes[:: max(1, len(eyes) // _DRAWN)]
    real, fake = gan.score(some), gan.score(made)
    return {
        "spread": float(made.std(axis=0).mean()), "spread_of_eyes": float(some.std(axis=0).mean()),
        "gap": float((real.mean() - fake.mean()) / real.std()),
    }  # fmt: skip


def attack_pictures(job: StepJob, progress: Progress) -> list[dict[str, Any]]:
    """Reconstruct the victims' pictures by an attack; return its scores."""
    progress(0.0, "holding rounds, and reconstructing")
    held, name = _hold(job), job.factors.attack
    shared = {
        "restarts": held.settings.restarts, "steps": held.settings.steps, "seed": held.seed,
    }  # fmt: skip
    if name == _COMPONENTS:
        settings = dualview.InversionSettings(**shared)
        pictures = held.dual.reconstruct(held.leak("plain"), held.sites, settings)
    else:
        how = _VARIANTS[name]
        settings = dualview.InversionSettings(
            prior=how.prior, gaze=how.gaze, appearance=how.appearance, **shared
        )
        gan = EyeGan.load(job.study / _PRIORS / f"{held.seed}.pt")
        pictures = dualview.reconstruct_by_gan(
            held.leak(how.way), held.sites, gan, held.public, settings, auxiliary=how.auxiliary
        )
    row = {**judge_pictures(held, pictures), "mae_deg": _gaze_error(held, pictures)}
    if job.step.name == "attacked":
        np.savez_compressed(job.folder / f"{held.seed}.{name}.npz", pictures=pictures)
        row["pictures"] = name
    return [row]


def infer_gaze(job: StepJob, progress: Progress) -> dict[str, float]:
    """Infer distributions of gaze from some of the rounds; return their divergence."""
    progress(0.0, "holding rounds, and inferring")
    held = _hold(job)
    scores = second_view(held, held.leak("plain"), _SEEN[job.factors.seen])
    return {"kl": scores["kl"], "mae_deg": scores["mae_deg"]}


def _hold(job: StepJob) -> Federation:
    samples = getattr(job.factors, "samples", 0)
    return hold_federation(job.data, json.dumps(vars(job.settings)), job.factors.seed, samples)


def _gaze_error(held: Federation, pictures: NDArray[np.uint8]) -> float:
    """Return the angle between the gaze asked for and that which public persons' network sees."""
    asked = held.public[dualview.spread_over_gaze(held.public, pictures.shape[1])]
    judge, count = to_module(held.shadow[-1].result), len(pictures)
    flat = pictures.reshape(-1, *PATCH_SHAPE)
    seen = predict_gaze(judge, flat, np.tile(asked.head, (count, 1)))
    return float(angular_errors_deg(seen, np.tile(asked.gaze, (count, 1))).mean())
