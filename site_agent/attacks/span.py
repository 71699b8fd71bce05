"""The span attack: the features of every training sample lie in the span of a dense layer's update.

The update of a dense layer is a sum over samples and steps of (gradients of its units) x (its
inputs, and 1 for the bias). While fewer samples trained than the layer has units, pictures of
others lie outside the span of its rows. The attacker needs one picture and the base, no other
sample, and a sum over sites hides nothing: it adds rows' vectors, and the span holds them all.
"""

from collections.abc import Mapping

import numpy as np
import torch

from aggregators.models import StateDict
from site_agent.attacks.leaks import Leak
from site_agent.attacks.separation import Float64
from site_agent.datasets.gaze.records import GazeSamples
from site_agent.federated.leak_checks import LayerInputs, dense_layers
from site_agent.networks.modules import to_module
from site_agent.training.gaze.loop import to_tensors

PREFIX = "span of "
"""The names of the scores begin with this; the layer's name follows."""
_ROUNDING = 2.0**-24
"""Of differences of numbers in single precision, in sizes of the numbers."""


def span_scores(leak: Leak, samples: GazeSamples) -> dict[str, Float64]:
    """Return by dense layer how far each sample's features lie inside the span: shape (n,) each.

    The score is the negated logarithm of the share outside, by the features at the networks before
    and after training: their mean. Rounds are summed, and the highest of all sites counts.
    """
    best: dict[str, Float64] = {}
    for site in leak.rounds[0].after:
        totals: dict[str, Float64] = {}
        for round_ in leak.rounds:
            for name, values in _round_scores(round_.before, round_.after[site], samples).items():
                totals[name] = totals.get(name, 0.0) + values
        for name, values in totals.items():
            best[name] = np.maximum(best.get(name, -np.inf), values)
    return best


def rows_of_layers(base: StateDict) -> dict[str, int]:
    """Return the number of units of each dense layer that the attack can use."""
    return {name: layer.out_features for name, layer in dense_layers(to_module(base))}


def _round_scores(before: StateDict, after: StateDict, samples: GazeSamples) -> dict[str, Float64]:
    features = [layer_inputs(network, samples) for network in (before, after)]
    scores = {}
    for name in features[0]:
        weight, bias = f"{name}.weight", f"{name}.bias"
        entries = [entry for entry in (weight, bias) if entry in before.tensors]
        rows = np.column_stack([_difference(before, after, entry) for entry in entries])
        # Rows that a site kept back are zeros.
        rows = rows[np.any(rows != 0, axis=1)]
        if len(rows):
            noise = _ROUNDING * float(np.sqrt(np.mean(np.square(before.tensors[weight]))))
            inputs = [values[name][:, : rows.shape[1]] for values in features]
            scores[f"{PREFIX}{name}"] = np.mean(
                [_inside_score(rows, values, noise) for values in inputs], axis=0
            )
    return scores


def _difference(before: StateDict, after: StateDict, entry: str) -> Float64:
    base = np.asarray(before.tensors[entry], dtype=np.float64)
    return np.asarray(after.tensors[entry], dtype=np.float64) - base


def _inside_score(rows: Float64, inputs: Float64, noise: float) -> Float64:
    """Project onto the rows' span; directions below the rounding noise do not belong to it."""
    products = rows @ rows.T + (noise**2 * rows.shape[1] + 1e-30) * np.eye(len(rows))
    shared = inputs @ rows.T
    sizes = np.square(inputs).sum(axis=1)
    outside = sizes - (shared * np.linalg.solve(products, shared.T).T).sum(axis=1)
    score: Float64 = -np.log(np.maximum(outside, 1e-15 * sizes) / sizes)
    return score


def layer_inputs(network: StateDict, samples: GazeSamples) -> Mapping[str, Float64]:
    """Return the inputs of each dense layer by samples, with a column of ones for the bias."""
    module, data = to_module(network).eval(), to_tensors(samples)
    inputs = LayerInputs(module)
    with torch.no_grad():
        inputs.run(module, (data.patches, data.head))
    return {
        name: np.column_stack([values.double().numpy(), np.ones(len(values))])
        for name, values in inputs.of.items()
    }
