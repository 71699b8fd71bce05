"""Membership: was a sample, or were samples of a person, among those that trained?

Signals are losses of the leaked networks (Yeom et al. 2018); logistic regression over them learns
from a shadow federation of public persons (Shokri et al. 2017); likelihood ratios compare each loss
with those of networks that have not seen the sample, or with and without it (Carlini et al. 2022,
offline and online; Zarifzadeh et al. 2024, RMIA). `gradients` says how much of a sample is in an
update, `span_scores` whether its features can be. If networks of single sites leaked, a sample is
taken for a member if it is one of any site.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from aggregators.models import StateDict
from site_agent.attacks import leaks, reidentification
from site_agent.attacks.gradients import SampleGradients
from site_agent.attacks.leaks import Leak
from site_agent.attacks.separation import Float64, MemberScores
from site_agent.datasets.gaze.records import GazeSamples
from site_agent.federated.leak_checks import LayerInputs, dense_layers
from site_agent.networks.modules import to_module
from site_agent.training.gaze.loop import to_tensors

_COEFFICIENT = "gradient regression"
_SHADOW_HALVES, _NEWTON_STEPS = 6, 25
_SMALLEST_DEVIATION = 1e-4
"""Of losses in radians: a sample on which all references agree is not decisive."""


@dataclass(frozen=True, eq=False)
class ShadowLosses:
    """Losses of a shadow federation on its own samples and on others."""

    losses: leaks.LeakLosses
    is_member: NDArray[np.bool_]


def membership_signals(losses: leaks.LeakLosses) -> dict[str, Float64]:
    """Return the signals of each sample, shape (n,) each; higher for members.

    ``loss now`` is of the networks after the last round, ``loss at base`` of the first base, and
    ``change`` by how much a site's rounds lowered the loss, beyond the mean over sites;
    ``change in a round`` is the largest of any round, visible only to an attacker with the
    networks of each round.
    """
    gains = losses.before[None] - losses.after
    if len(losses.sites) > 1:
        gains = gains - gains.mean(axis=0)
    return {
        "loss now": -losses.after[:, -1].min(axis=0),
        "loss at base": -losses.before[0],
        "change": gains.sum(axis=1).max(axis=0),
        "change in a round": gains.max(axis=(0, 1)),
    }


def likelihood_ratios(losses: leaks.LeakLosses, references: Float64) -> Float64:
    """Return the score of each sample against references: shape (n,), in standard deviations.

    `references` (float64, shape (networks, n)): Losses of networks that have not been trained with
    the samples, at least one. The networks of other sites serve as well, if they leaked.
    """
    last = losses.after[:, -1]
    scores = np.empty_like(last)
    for site, loss in enumerate(last):
        out = np.concatenate([references, np.delete(last, site, axis=0)])
        deviation = np.maximum(out.std(axis=0), _SMALLEST_DEVIATION)
        if len(out) < 5:
            # Too few networks for a deviation of each sample.
            deviation = np.full_like(loss, np.sqrt(np.mean(deviation**2)))
        scores[site] = (out.mean(axis=0) - loss) / deviation
    best: Float64 = scores.max(axis=0)
    return best


@dataclass(frozen=True, eq=False)
class Candidates:
    """Members and other samples, with the attacker's computations on them."""

    losses: leaks.Losses
    """Of the samples."""
    is_member: NDArray[np.bool_]
    """Of shape (n,)."""
    gradients: SampleGradients

    @classmethod
    def of(cls, members: GazeSamples, others: GazeSamples) -> "Candidates":
        """Return samples that trained, and others."""
        samples = GazeSamples.join([members, others])
        is_member = np.arange(len(samples)) < len(members)
        return cls(leaks.Losses(samples), is_member, SampleGradients(samples))

    def choose(self, index: NDArray[np.bool_]) -> "Candidates":
        """Return some of them."""
        losses = leaks.Losses(self.losses.samples[index])
        return Candidates(losses, self.is_member[index], self.gradients.choose(index))


def probe_membership(
    leak: leaks.Leak,
    candidates: Candidates,
    *,
    shadow: ShadowLosses | None = None,
    references: Float64 | None = None,
) -> dict[str, MemberScores]:
    """Attack the membership of samples in a leak in every way that the given knowledge allows.

    `shadow`: For logistic regression; of the same kind of leak. `references` (float64, shape
    (networks, n)): Losses of networks of public persons; see `likelihood_ratios`.
    """
    losses = candidates.losses.of_leak(leak)
    scores = signals = membership_signals(losses)
    if len(leak.rounds) == 1:
        # The largest change of a round is the change.
        scores = {name: signal for name, signal in signals.items() if name != "change in a round"}
    spans = span_scores(leak, candidates.losses.samples)
    scores = {**spans, **scores, **candidates.gradients.scores(leak)}
    if shadow is not None:
        fitted = fit_logistic(_columns(membership_signals(shadow.losses)), shadow.is_member)
        scores["shadow model"] = fitted.predict(_columns(signals))
    if references is not None and len(references):
        scores["public references"] = likelihood_ratios(losses, references)
    persons = candidates.losses.samples.person
    return {
        name: MemberScores(values, candidates.is_member, persons) for name, values in scores.items()
    }


Train = Callable[[GazeSamples, str], StateDict]
"""Trains samples from the base as sites do; the text names the site, which seeds the order."""


def probe_by_shadows(
    leak: leaks.Leak,
    members: GazeSamples,
    others: GazeSamples,
    train: Train,
    *,
    count: int,
    seed: int,
) -> dict[str, MemberScores]:
    """Attack the membership of samples by networks trained with and without each: LiRA and RMIA.

    Each shadow trains on a random half of the members and of an equal number of others, so that
    each sample is in half of the shadows. Its loss after training and its gradient's coefficient in
    the update are Gaussian with and without it; the score of LiRA is the log-likelihood ratio
    (Carlini et al. 2022). RMIA asks how many other samples' likelihood rose less by the training,
    against their mean over the shadows (Zarifzadeh et al. 2024). It expects lower losses of
    members; a large step overshoots and raises them, which a network of one other person shows.

    `leak`: Of one round and one network.
    """
    judged = Candidates.of(members, others[:: max(1, len(others) // len(members))])
    samples, rng = judged.losses.samples, np.random.default_rng(seed)
    ((held, after),) = ((round_, next(iter(round_.after.values()))) for round_ in leak.rounds)
    inside = np.zeros((count, len(samples)), dtype=bool)
    attacked = []
    for number in range(-1, count):
        network = after
        if number >= 0:
            inside[number] = rng.permutation(len(samples)) < len(samples) // 2
            network = train(samples[inside[number]], f"shadow {number}")
        one = leaks.leak_of_network(held.before, network)
        attacked.append([judged.losses.of(network), judged.gradients.scores(one)[_COEFFICIENT]])
    seen, shadows = np.array(attacked[0]), np.array(attacked[1:])
    score = np.zeros(len(samples))
    for signal in range(len(seen)):
        values = shadows[:, signal]
        inside_losses, rest = (np.ma.array(values, mask=mask) for mask in (~inside, inside))
        spread = float(np.sqrt((inside_losses.var(axis=0) + rest.var(axis=0)).mean() / 2)) + 1e-12
        apart = np.square(seen[signal] - rest.mean(axis=0))
        apart -= np.square(seen[signal] - inside_losses.mean(axis=0))
        score += np.ma.filled(apart, 0.0) / (2 * spread**2)
    relative = relative_scores(seen[0], shadows[:, 0], judged.is_member)
    if _overshoots(judged, shadows[:, 0], train):
        relative = -relative
    scores = {"LiRA": score, "RMIA": relative}
    return {
        name: MemberScores(values, judged.is_member, samples.person)
        for name, values in scores.items()
    }


def relative_scores(loss: Float64, shadow_losses: Float64, is_member: NDArray[np.bool_]) -> Float64:
    """Return the share of the population that each sample's likelihood ratio exceeds: shape (n,).

    The likelihood of a loss is exponential (Laplace errors of gaze). The population are the others.
    """
    scale = float(shadow_losses.mean()) + 1e-12
    ratio = np.exp(-loss / scale) / np.exp(-shadow_losses / scale).mean(axis=0)
    shares: Float64 = (ratio[:, None] >= ratio[None, ~is_member]).mean(axis=1)
    # The ratio itself breaks ties among those above the whole population.
    shares += 1e-6 * ratio
    return shares


def _overshoots(judged: Candidates, shadow_losses: Float64, train: Train) -> bool:
    """Return whether training on one of the other persons raises that person's losses."""
    others = judged.losses.samples[~judged.is_member]
    is_trained = others.person == others.person[0]
    loss = judged.losses.of(train(others[is_trained], "trial of one person"))[~judged.is_member]
    scores = relative_scores(loss, shadow_losses[:, ~judged.is_member], is_trained)
    return bool(scores[is_trained].mean() < 0.5)


def reference_losses(
    recorded: Sequence[leaks.RecordedRound], losses: leaks.Losses, seed: int = 0
) -> Float64:
    """Return losses of shadow federations on the samples; see `likelihood_ratios`.

    Each is the last round of `recorded` with another random half of its sites.

    Returns float64, shape (6, n).
    """
    last = recorded[-1]
    rng = np.random.default_rng(seed)
    sites = sorted(last.updates)
    rows = []
    for _ in range(_SHADOW_HALVES):
        chosen = rng.choice(sites, max(1, len(sites) // 2), replace=False)
        network: StateDict = leaks.apply_update(last.base, *(last.updates[site] for site in chosen))
        rows.append(losses.of(network))
    return np.array(rows)


def _columns(signals: Mapping[str, Float64]) -> Float64:
    return np.stack([signals[name] for name in sorted(signals)], axis=1)


# Attributes of the persons at a site are predicted from its update, likewise by regression.
PENALTY = 0.1


def predict_from_updates(
    leak: leaks.Leak, sites: Sequence[str], shadow: Mapping[str, StateDict], values: Float64
) -> Float64:
    """Predict numbers that describe each site, by regression over updates of shadow sites.

    Kernel ridge regression over the cosines between updates of the first round. Melis et al.
    2019 infer properties from updates likewise.

    `leak`: With at least one round. If only a combined network leaked, all sites get its
    prediction. `shadow`: Networks that were trained from the leak's first base, each on another
    public person. `values` (float64, shape (shadow sites, columns)): Attributes of those persons,
    such as 1 for glasses and 0 for none.

    Returns float64, shape (sites, columns).
    """
    first = leak.rounds[0]
    known = list(shadow.values())
    seen = list(first.after.values())
    among = reidentification.update_cosines(first.before, known, known, centre=known)
    between = reidentification.update_cosines(first.before, seen, known, centre=known)
    predicted = kernel_ridge(among, between, values, PENALTY)
    order = list(first.after)
    place = [order.index(site if site in first.after else leaks.ALL_SITES) for site in sites]
    return predicted[place]


# Regression in a few lines rather than from a library: attacks learn from few shadow sites.


@dataclass(frozen=True, eq=False)
class Logistic:
    """A fitted logistic regression."""

    centre: Float64
    scale: Float64
    weights: Float64

    def predict(self, features: Float64) -> Float64:
        """Return the probability of each row, 0 to 1: shape (n,)."""
        scaled = (features - self.centre) / self.scale
        return _sigmoid(self.weights[0] + scaled @ self.weights[1:])


def fit_logistic(features: Float64, labels: NDArray[np.bool_]) -> Logistic:
    """Fit a logistic regression with an L2 penalty by Newton's method, classes weighted alike.

    `features` (float64, shape (n, columns)). `labels` (bool, shape (n,)): Some of either kind.
    """
    centre, scale = features.mean(axis=0), features.std(axis=0) + 1e-12
    rows = np.column_stack([np.ones(len(features)), (features - centre) / scale])
    target = labels.astype(np.float64)
    share = np.where(labels, 0.5 / target.mean(), 0.5 / (1 - target).mean())
    ridge = np.eye(rows.shape[1])
    ridge[0, 0] = 1e-9
    weights = np.zeros(rows.shape[1])
    for _ in range(_NEWTON_STEPS):
        predicted = _sigmoid(rows @ weights)
        slope = rows.T @ (share * (predicted - target)) + ridge @ weights
        curve = (rows * (share * predicted * (1 - predicted))[:, None]).T @ rows + ridge
        weights = weights - np.linalg.solve(curve, slope)
    return Logistic(centre, scale, weights)


def kernel_ridge(known: Float64, between: Float64, values: Float64, penalty: float) -> Float64:
    """Return predictions of kernel ridge regression: shape (m, columns).

    `known` (float64, shape (n, n)): Kernel among the rows with known values. `between`
    (float64, shape (m, n)): Kernel between the rows to predict and those. `values` (float64, shape
    (n, columns)). `penalty`: In means of the diagonal of `known`.
    """
    mean = values.mean(axis=0)
    ridge = penalty * np.trace(known) / len(known) * np.eye(len(known))
    predicted: Float64 = mean + between @ np.linalg.solve(known + ridge, values - mean)
    return predicted


def _sigmoid(values: Float64) -> Float64:
    return 1 / (1 + np.exp(-np.clip(values, -50, 50)))


PREFIX = "span of "
"""The names of the scores begin with this; the layer's name follows."""
_ROUNDING = 2.0**-24
"""Of differences of numbers in single precision, in sizes of the numbers."""


def span_scores(leak: Leak, samples: GazeSamples) -> dict[str, Float64]:
    """Return by dense layer how far each sample's features lie inside the span: shape (n,) each.

    The update of a dense layer is a sum over samples and steps of (gradients of its units) x (its
    inputs, and 1 for the bias). While fewer samples trained than the layer has units, pictures of
    others lie outside the span of its rows. The attacker needs one picture and the base, no other
    sample, and a sum over sites hides nothing: it adds rows' vectors, and the span holds them all.

    The score is the negated logarithm of the share outside, by the features at the networks before
    and after training: their mean. Rounds are summed, and the highest of all sites counts.
    """
    return leaks.sum_over_rounds(leak, lambda before, after: _round_scores(before, after, samples))


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
