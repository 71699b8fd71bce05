"""What a client part may not be: a camera, which hands the server pictures instead of features.

Who may lie here: whoever made the first client part, or the aggregator. Smashed data behind honest
filters show much of an image, too (`site_agent.attacks`); these checks refuse parts that no
training makes, and that would show it without any attack.
"""

import torch
from torch import nn

from aggregators.models import StateDict
from site_agent.datasets.gaze import GazeSamples
from site_agent.errors import ContributionWithheldError
from site_agent.federated.leak_checks import audit_dense_layers, objections_to_training
from site_agent.split.cuts import Cut, to_part_module
from site_agent.split.plan import SplitPlan
from site_agent.training.gaze.loop import to_tensors

MOST_IN_ONE_TAP = 0.75
"""Of a filter's energy, what one weight may have: a filter of one weight copies the picture.
Filters that torch draws have below 0.15, trained ones below 0.5 (see tests)."""

MOST_SMASHED = 1e4
"""Largest number of smashed data; patches have a standard deviation of 1."""

_LOOKED_AT = 512


def require_safe_part(
    round_name: str, part: StateDict, samples: GazeSamples, plan: SplitPlan
) -> None:
    """Refuse a round's client part before anything is computed for others.

    Raises
    ------
    ContributionWithheldError
        Settings that no site accepts, or a part that no training makes; with each finding.
    """
    reasons = objections_to_training(plan.training)
    found = audit_client_part(part, samples, plan.found_cut)
    reasons += [f"the client part is not a trained one: {each}" for each in found]
    if reasons:
        raise ContributionWithheldError(
            round_name, reasons, hint="ask whoever made the kits how the first network was made"
        )


def audit_client_part(part: StateDict, samples: GazeSamples, cut: Cut) -> list[str]:
    """Return what a client part has that training does not make; empty for honest ones.

    `samples`: The site's own; 512 of them are looked at.
    """
    module = to_part_module(part, cut, "client")
    found = []
    for name, layer in module.named_modules():
        if isinstance(layer, nn.Conv2d) and (copying := _copying_filters(layer.weight)):
            found.append(
                f"{copying} of the {layer.out_channels} filters of {name} copy their input: one "
                f"weight has more than {MOST_IN_ONE_TAP:.0%} of a filter's energy"
            )
    data = to_tensors(samples[:: max(1, len(samples) // _LOOKED_AT)])
    front = cut.front_stages(module.stages)
    with torch.no_grad():
        smashed = module.run_stages(front, data.patches, data.head)
    largest = float(smashed.abs().max())
    if not largest <= MOST_SMASHED:
        found.append(f"it answers with {largest:.3g}, expected at most {MOST_SMASHED:g}")
    return found + audit_dense_layers(module, data)


def _copying_filters(weight: torch.Tensor) -> int:
    """Return how many filters of shape (filters, ...) have nearly all energy in one weight."""
    energy = weight.detach().flatten(1).square()
    if energy.shape[1] < 2:
        return 0
    total = energy.sum(1)
    share = energy.max(1).values / total.clamp(min=1e-30)
    return int(((share > MOST_IN_ONE_TAP) & (total > 0)).sum())
