"""Checks of a site on client parts and on the server's gradients, before smashed data show more.

Liars considered: the maker of the first client part, the aggregator, and the main server. The first
part is the one that the site draws from the seed in its kit, or one that it accepts by digest. Each
later one is near the one before, and so is the part while it is trained. The audit of a part is no
promise: a code of the pictures, such as their principal components, passes it.

A server that trains the client part for an aim of its own (feature-space hijacking, Pasquini et al.
2021) needs gradients for that aim. A site cannot tell the aim of a gradient, but it can bound the
force: of honest ones, the linear change of the loss over the length of the smashed data is a
bounded multiple of the site's own loss.
"""

import hashlib
from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from aggregators.formats import encode_model
from aggregators.models import Float32, StateDict
from site_agent import errors
from site_agent.datasets.gaze.records import GazeSamples
from site_agent.federated.leak_checks import audit_dense_layers, objections_to_training
from site_agent.split import parts
from site_agent.split.kits import SplitKit, draw_client_part, drawing_program
from site_agent.split.plan import Cut, SplitPlan
from site_agent.training.gaze.loop import to_tensors

MOST_IN_ONE_TAP = 0.75
"""Largest share of a filter's energy in one weight: a filter of one weight copies the picture.
Filters that torch draws have below 0.15, trained ones below 0.5 (see tests)."""

MOST_SMASHED = 1e4
"""Largest number of smashed data; patches have a standard deviation of 1."""

_LOOKED_AT = 512


def require_safe_part(
    round_name: str, part: StateDict, samples: GazeSamples, plan: SplitPlan
) -> None:
    """Refuse a round's client part before anything is computed for others.

    Raises `ContributionWithheldError`: settings that no site accepts, or a part that no training
    makes; with each finding.
    """
    reasons = objections_to_training(plan.training)
    objections = audit_client_part(part, samples, plan.found_cut)
    reasons += [f"the client part is not a trained one: {item}" for item in objections]
    if reasons:
        raise errors.ContributionWithheldError(
            round_name, reasons, hint="ask the maker of the kits how the first network was made"
        )


def audit_client_part(part: StateDict, samples: GazeSamples, cut: Cut) -> list[str]:
    """Return the properties of a client part that training does not produce; empty if honest.

    `samples`: The site's own; 512 of them are looked at.
    """
    module = parts.to_part_module(part, cut, "client")
    objections = []
    for name, layer in module.named_modules():
        if isinstance(layer, nn.Conv2d) and (copying := _copying_filters(layer.weight)):
            objections.append(
                f"{copying} of the {layer.out_channels} filters of {name} copy their input: one "
                f"weight has more than {MOST_IN_ONE_TAP:.0%} of a filter's energy"
            )
    data = to_tensors(samples[:: max(1, len(samples) // _LOOKED_AT)])
    front = cut.front_stages(module.stages)
    with torch.no_grad():
        smashed = module.run_stages(front, data.patches, data.head)
    largest = float(smashed.abs().max())
    if not largest <= MOST_SMASHED:
        objections.append(f"it answers with {largest:.3g}, expected at most {MOST_SMASHED:g}")
    return objections + audit_dense_layers(module, data)


def _copying_filters(weight: torch.Tensor) -> int:
    """Return how many filters of shape (filters, ...) have nearly all energy in one weight."""
    energy = weight.detach().flatten(1).square()
    if energy.shape[1] < 2:
        return 0
    total = energy.sum(1)
    share = energy.max(1).values / total.clamp(min=1e-30)
    return int(((share > MOST_IN_ONE_TAP) & (total > 0)).sum())


MOST_MOVED = 0.75
"""Distance of a part's weights before the server's stages from those before, in sizes of these.
Honest rounds moved them by up to 0.12, of dense layers under Adam 0.53. No other direction is that
near: the nearest multiple of an unrelated weight is 1 away."""

MOST_PULL, SMALLEST_LOSS_RAD = 1000.0, 0.05
"""Size of a gradient times that of its smashed data, in losses of a constant answer at the site,
which are taken to be at least so large. In trainings that converged it was up to 240."""


def require_known_origin(kit: SplitKit, accepted: str) -> None:
    """Refuse a first client part that the site cannot repeat, unless it accepts the digest."""
    if kit.first_client == accepted:
        return
    if kit.client_seed is None:
        reason = "the first client part was not drawn from a seed"
    else:
        drawn = encode_model(draw_client_part(kit.plan, kit.client_seed), "safetensors")
        if hashlib.sha256(drawn).hexdigest() == kit.first_client:
            return
        reason = (
            f"the first client part is not the one of seed {kit.client_seed}, drawn by "
            f"{kit.drawn_by}; here {drawing_program()} draws"
        )
    raise errors.ContributionWithheldError(
        f"1 of {kit.plan.rounds}",
        [f"{reason}: its maker could read your pictures from the smashed data"],
        hint=f"accept it only if its maker may have the pictures: --accept {kit.first_client}",
    )


def require_near(round_name: str, part: StateDict, before: StateDict, cut: Cut) -> None:
    """Refuse a client part that no round of training makes of the one before."""
    if (moved := distance(part.tensors, before.tensors, cut)) > MOST_MOVED:
        raise errors.ContributionWithheldError(
            round_name,
            [f"the client part is {moved:.2g} of its size away from the last, expected at most "
             f"{MOST_MOVED:g}: a round of training does not move it so far"],
            hint="ask the aggregator how the parts were averaged",
        )  # fmt: skip


def distance(
    weights: Mapping[str, NDArray[np.generic]], before: Mapping[str, NDArray[np.generic]], cut: Cut
) -> float:
    """Return the largest distance of weights before the server's stages, in their sizes."""
    front = parts.layer_names(cut.front_stages(parts.build_network(cut.architecture).stages))
    return max(
        float(np.linalg.norm(np.subtract(weights[name], values)))
        / max(float(np.linalg.norm(values)), 1e-12)
        for name, values in before.items()
        if values.ndim > 1 and any(name.startswith(f"{layer}.") for layer in front)
    )


class GradientWatch:
    """Watches the server's gradients, and the client part that they train.

    `module`: Before its first step. `gaze`: Of all samples of the site.
    """

    def __init__(self, module: nn.Module, gaze: NDArray[np.float64], plan: SplitPlan) -> None:
        constant = float(np.abs(gaze - np.median(gaze, axis=0)).mean())
        self._most_pull = MOST_PULL * max(constant, SMALLEST_LOSS_RAD)
        self._module, self._plan = module, plan
        self._before = {name: values.copy() for name, values in _weights_of(module).items()}

    def require_usable(self, gradient: Float32, loss: float, smashed: Float32, step: int) -> None:
        """Refuse a server's answer; nothing more is sent then.

        Raises `TrainingFailedError`: numbers that are not finite, another shape, a gradient that is
        too large for the loss, or a part that has been moved too far.
        """
        way_out = self._plan.way_out
        if not np.isfinite(loss) or not np.isfinite(gradient).all():
            raise errors.TrainingFailedError(f"the loss is {loss} in step {step}: {way_out}")
        if gradient.shape != smashed.shape:
            raise errors.TrainingFailedError(
                f"the gradient has shape {list(gradient.shape)}, expected {list(smashed.shape)}"
            )
        pull = float(np.linalg.norm(gradient)) * float(np.linalg.norm(smashed))
        moved = distance(_weights_of(self._module), self._before, self._plan.found_cut)
        for fact, value, most in (
            ("pulls by", pull, self._most_pull), ("has moved the part by", moved, MOST_MOVED)
        ):  # fmt: skip
            if value > most:
                raise errors.TrainingFailedError(
                    f"the server's gradient of step {step} {fact} {value:.3g}, expected at most "
                    f"{most:.3g}: it serves another aim than your gaze, or training diverges; "
                    f"{way_out}"
                )


def _weights_of(module: nn.Module) -> dict[str, NDArray[np.generic]]:
    return {name: values.detach().numpy() for name, values in module.named_parameters()}
