"""Checks of a site that keep its update of a network from showing a single picture.

Liars considered: the maker of a round's base, be it the starter, the pool or the server of
live rounds. The update of a dense layer's row is the sum over samples of (gradient of the unit) x
(the layer's input), so that a row to which one sample contributes *is* that sample's input, and
behind convolutions that pass pictures on, its picture (Phong et al. 2018; Boenisch et al. 2021,
"When the curious abandon honesty"). Two rows that measure the same with different thresholds
show by their difference the samples between (Fowl et al. 2022, "Robbing the Fed").

So a site

1. refuses a base that no training makes (`audit_base`): dense rows that measure the same, units
   that nearly never answer, outputs beyond any gaze. Where differential privacy bounds the
   leak, it takes any base;
2. takes at most an eighth of its samples in a step (`batch_size_for`), and at least 8 steps
   (`passes_for`);
3. keeps back each dense row and filter that rests on fewer than 5 samples, and each dense row from
   which one of its own pictures can be read (`WatchedRows`): the row's differences are sent as
   zeros. Honest bases have such rows, too, above all where a site has few samples.

All of this depends on base, data and settings alone, so that all engines of rounds agree. One
leak remains: rows are means over at least 5 samples, and where these are frames of one stare, a
mean shows the stare; `site_agent.attacks` measures the leaks of an update.
"""

import math
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from site_agent.errors import ContributionWithheldError
from site_agent.federated.tasks import task_of_network
from site_agent.networks.modules import to_module

if TYPE_CHECKING:
    from aggregators.methods.round_options import LocalTraining
    from aggregators.models import StateDict

FEWEST_SAMPLES = 5
"""In a row that is sent, as `min_faces` for leaf sums."""

MOST_GAIN_DB, MOST_GAIN_OF_PAIRS_DB = 6.0, 9.0
"""How much nearer than their mean a row may come to one of the site's inputs, and a difference of
two rows: among all pairs, chance brings some near."""

MOST_COSINE = 0.6
"""Between two rows. Honest networks stayed below 0.3, cameras worked from 0.9 on (see tests)."""

MOST_COSINE_DRAWING = 0.8
"""Between two rows that draw a picture: those of neighbouring places resemble each other. In
honest cross-encoders no row had five others above 0.7 (drawn eyes, up to 12 epochs)."""

MOST_UNAUDITED_EPSILON = 10.0
"""Beyond it the noise alone bounds little."""
MOST_CORRELATION, FEWEST_COMPARED = 0.995, 16
"""Between the answers of two units to the site's own samples, and samples needed to tell. Rows
with weights on inputs that cancel measure the same, which a comparison of weights misses. To the
pictures of one person many units of an honest network answer nearly alike: a third of them had five
others above 0.98, 2 of 500 above 0.99, none above 0.995 (4 networks, each of 6 drawn persons)."""

FEWEST_PARALLEL, FEWEST_PARALLEL_DRAWING = 5, 16
"""Other rows that a row of a camera is parallel to: it reads one sample for each threshold.
In honest networks pruned to 0.1 % of the weights, a row had up to 3 by chance. Of rows that draw a
picture, up to 3 others answered alike."""

LEAST_SHARE, FEWEST_ANSWERED = 0.15, 3
"""Samples to which a unit answers, in the middle of all answers (`_usual_share`): a share, and at
few samples a number. Honest networks stayed above 0.23, one of 60 epochs above 0.16 (8 networks, 13
sites of other persons, and each of their persons), although half of their units may answer to less
than 1 % of the samples of a person unlike those that trained. Cameras stayed below 0.09; with 30 of
500 units that always answer below 0.14, but at 0.22 to one person's 60 pictures. More of these, or
thresholds set from other persons' pictures at a site of one person, let a camera pass; its rows are
then kept back (`WatchedRows`). Differences of rows with nearly equal updates then showed at most
2 % of the pictures, 10 to 12 dB nearer than their mean."""

MOST_COUNTED_SHARE = 0.3
"""Of a unit's answers, so that a few units that always answer do not hide all others."""

FEWEST_STEPS, FEWEST_FOR_AN_UPDATE = 8, 32
"""Steps of a site's training, and samples below which it is warned."""

MOST_EPOCHS, MOST_LEARNING_RATE, MOST_MOMENTUM, FEWEST_IN_A_STEP = 100, 0.5, 0.99, 2

_FEWEST_UNITS = 8
"""A layer with fewer units has too few rows to sort samples by."""

_CONVOLUTIONS = (nn.Conv2d, nn.Conv3d)

_COMPARED_AT_ONCE = 2048
"""Inputs; their products with all rows stay in the processor's cache."""

_LOOKED_AT = {4: 512, 5: 16}
"""Samples of the site that are compared with rows, evenly spaced, by dimensions of the input: of
a clip, all its tokens are. It is enough to see near copies."""


def objections_to_training(settings: "LocalTraining") -> list[str]:
    """Return the objections to settings of a round that no site accepts."""
    bounds = (
        ("epochs", settings.epochs, 1, MOST_EPOCHS),
        ("batch_size", settings.batch_size, FEWEST_IN_A_STEP, None),
        ("learning_rate", settings.learning_rate, 0, MOST_LEARNING_RATE),
        ("momentum", settings.momentum, 0, MOST_MOMENTUM),
    )
    return [
        f"the round asks for {name} {value:g}, and sites train with "
        + (f"at most {most:g}" if most is not None and value > most else f"at least {least:g}")
        for name, value, least, most in bounds
        if value < least or (most is not None and value > most)
    ]


def batch_size_for(settings: "LocalTraining", samples: int) -> int:
    """Return the number of samples in a step: at most an eighth of the site's, and at least 2.

    An update of one step is a single mean of gradients, which linear algebra takes apart.
    """
    return min(int(settings.batch_size), max(2, samples // 8))


def passes_for(settings: "LocalTraining", samples: int) -> int:
    """Return the number of passes over a site's samples: the round's, but at least 8 steps."""
    return max(settings.epochs, -(-FEWEST_STEPS // _steps_in_a_pass(settings, samples)))


def warn_of_few(settings: "LocalTraining", samples: int) -> str:
    """Return a warning for a site with few samples; empty for others."""
    steps = passes_for(settings, samples) * _steps_in_a_pass(settings, samples)
    if samples >= FEWEST_FOR_AN_UPDATE:
        return ""
    return (
        f"your update rests on {samples} samples and {steps} steps: a reader with pictures of "
        "yours may find out which ones trained (of patches, 'poolctl privacy probe' measures it)"
    )


def warn_of_span(network: "StateDict", samples: int) -> str:
    """Return a warning for a site with fewer samples than a dense layer has units; else nothing.

    Their features then lie in the span of the layer's update (`site_agent.attacks.membership`).
    """
    rows = [info.shape[0] for info in network.infos.values() if len(info.shape) == 2]
    units = max((count for count in rows if count >= _FEWEST_UNITS), default=0)
    if samples >= units:
        return ""
    return (
        f"{samples} samples are fewer than the {units} units of a layer: a reader of your update "
        f"(or of a sum, while all its sites together have fewer than {units} samples) can tell "
        "of any picture whether it trained (of patches, 'poolctl privacy probe' measures it)"
    )


def _steps_in_a_pass(settings: "LocalTraining", samples: int) -> int:
    return max(1, -(-samples // batch_size_for(settings, samples)))


def require_safe(
    round_name: str, base: "StateDict", samples: Any, settings: "LocalTraining"
) -> None:
    """Refuse an unsafe round before anything is computed for others.

    The base of a private round is not audited up to `MOST_UNAUDITED_EPSILON`: differential privacy
    bounds the leak from any base, and a refusal, which depends on the site's data, is outside its
    bound.

    Raises `ContributionWithheldError`: settings that no site accepts, or a base that no training
    makes; with each finding.
    """
    reasons = objections_to_training(settings)
    if settings.dp_epsilon is None or settings.dp_epsilon > MOST_UNAUDITED_EPSILON:
        objections = audit_base(base, samples)
        reasons += [f"the base is not a trained network: {item}" for item in objections]
    if reasons:
        raise ContributionWithheldError(
            round_name, reasons, hint="ask the starter of the round how the base was made"
        )


def audit_base(base: "StateDict", samples: Any) -> list[str]:
    """Return the properties of a base that training does not produce; empty for honest ones.

    `samples`: The site's own; 512 patches or 16 clips of them are looked at.
    """
    task = task_of_network(base)
    module = to_module(base, "the base").eval()
    inputs, objections = LayerInputs(module), []
    with torch.no_grad():
        output = inputs.run(module, _some(task.to_tensors(samples)))
        largest = float(output.abs().max())
        if not bool(torch.isfinite(output).all()) or largest > task.most_output:
            objections.append(
                f"it answers with {largest:.3g}, expected at most {task.most_output:g}"
            )
    return objections + _objections_to_layers(inputs, len(output), task.drawing_layers)


def audit_dense_layers(module: nn.Module, data: Any) -> list[str]:
    """Return the properties of a module's dense layers that training does not produce.

    `data`: The module's input; see `audit_base` for the number examined.
    """
    if not dense_layers(module):
        return []
    inputs = LayerInputs(module)
    with torch.no_grad():
        count = len(inputs.run(module.eval(), _some(data)))
    return _objections_to_layers(inputs, count)


def _objections_to_layers(
    inputs: "LayerInputs", count: int, drawing_layers: Collection[str] = ()
) -> list[str]:
    """Return properties that training does not produce, judged by `count` samples.

    `drawing_layers`: Their rows each draw a place of a picture, so that neighbours resemble each
    other.
    """
    objections = []
    with torch.no_grad():
        for name, layer in inputs.layers:
            is_drawing = name in drawing_layers
            answers = layer(inputs.of[name])
            scales = {"their weights have": torch.ones(layer.in_features)}
            if len(answers) >= FEWEST_COMPARED:
                # Weights on inputs that never change hide nothing from this comparison.
                by_sample = "their weights, by how far your samples move their inputs, have"
                scales[by_sample] = inputs.of[name].std(0)
            for text, scale in scales.items():
                # By chance fewer than five rows of this length have such a cosine.
                length = float(scale.square().sum().square() / scale.pow(4).sum().clamp(min=1e-30))
                most = max(
                    MOST_COSINE_DRAWING if is_drawing else MOST_COSINE,
                    3.4 / math.sqrt(max(1.0, length)),
                )
                if parallel := _parallel_rows(layer.weight * scale, most):
                    objections.append(
                        f"{parallel} of the {layer.out_features} units of {name} measure the same: "
                        f"{text} cosines above {most:.2g}; trained networks do not"
                    )
                    break
            if equal := _correlated_units(answers, is_drawing=is_drawing):
                objections.append(
                    f"{equal} of the {layer.out_features} units of {name} answer alike to your "
                    f"samples: correlations above {MOST_CORRELATION:g}; trained networks do not"
                )
            share = _usual_share(answers)
            if share < max(LEAST_SHARE, (FEWEST_ANSWERED - 0.5) / count):
                objections.append(
                    f"half of the answers of {name} come from units that answer to at most "
                    f"{share:.1%} of your samples: each would show one of them"
                )
    return objections


class WatchedRows:
    """Watches the dense layers and convolutions of a module while a site trains it.

    `module`: Before its first step. `epochs`: How often each sample will be seen.
    """

    def __init__(self, module: nn.Module, data: Any, epochs: int) -> None:
        self._epochs = epochs
        self._sums: dict[str, torch.Tensor] = {}
        self._squares: dict[str, torch.Tensor] = {}
        self._inputs = LayerInputs(module)
        if dense_layers(module):
            with torch.no_grad():
                self._inputs.run(module.eval(), _some(data))
        self._hooks = [
            layer.register_forward_hook(self._watch(name, is_dense=isinstance(layer, nn.Linear)))
            for name, layer in module.named_modules()
            if isinstance(layer, _CONVOLUTIONS) or (name, layer) in self._inputs.layers
        ]

    def _watch(self, name: str, *, is_dense: bool):  # type: ignore[no-untyped-def]
        def add(gradient: torch.Tensor) -> None:
            # Of a clip, a layer sees many tokens, and a filter many places: a row has to rest on
            # several samples.
            size = gradient.detach().abs()
            size = size.flatten(1, -2).sum(1) if is_dense and size.ndim > 2 else size
            size = size if is_dense else size.flatten(2).norm(dim=2)
            if name not in self._sums:
                self._sums[name] = torch.zeros(size.shape[1])
                self._squares[name] = torch.zeros(size.shape[1])
            self._sums[name] += size.sum(0)
            self._squares[name] += size.square().sum(0)

        def hook(_layer: nn.Module, _inputs: object, output: torch.Tensor) -> None:
            if output.requires_grad:
                output.register_hook(add)  # type: ignore[no-untyped-call]

        return hook

    def close(self) -> None:
        """Stop watching."""
        for hook in self._hooks:
            hook.remove()

    def keep_back(self, differences: dict[str, NDArray[np.generic]]) -> int:
        """Set the rows to zero that would show a sample, in place; return their number.

        `differences`: By entry of the network; weights of shape (units, inputs), biases of shape
        (units,).
        """
        count = 0
        for name, sums in self._sums.items():
            # As many equal gradients would have this ratio of sums (the participation ratio).
            effective = sums.square() / self._squares[name].clamp(min=1e-30) / self._epochs
            # In place: the arrays are those of `differences`.
            weight = torch.from_numpy(differences[f"{name}.weight"])
            shown = effective < FEWEST_SAMPLES
            if f"{name}.bias" in differences:
                bias = torch.from_numpy(differences[f"{name}.bias"])
                if name in self._inputs.of:
                    shown |= _readable(weight, bias, self._inputs.of[name])
                    shown |= _readable_pairs(weight, bias, self._inputs.of[name], shown)
                bias[shown] = 0
            weight[shown] = 0
            count += int((shown & (sums > 0)).sum())
        return count


def dense_layers(module: nn.Module) -> list[tuple[str, nn.Linear]]:
    """Return the dense layers with at least 8 units, by their names."""
    return [
        (name, layer)
        for name, layer in module.named_modules()
        if isinstance(layer, nn.Linear) and layer.out_features >= _FEWEST_UNITS
    ]


class LayerInputs:
    """The inputs of the dense layers of a module."""

    def __init__(self, module: nn.Module) -> None:
        self.of: dict[str, torch.Tensor] = {}
        self.layers = dense_layers(module)

    def run(self, module: nn.Module, data: tuple[torch.Tensor, ...]) -> torch.Tensor:
        """Run a module, and return its output; `of` has the inputs afterwards."""

        def keep(name: str):  # type: ignore[no-untyped-def]
            def hook(_layer: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
                self.of[name] = inputs[0].detach().flatten(0, -2)

            return hook

        hooks = [layer.register_forward_pre_hook(keep(name)) for name, layer in self.layers]
        try:
            output: torch.Tensor = module(*data)
        finally:
            for hook in hooks:
                hook.remove()
        return output


def _some(data: Any) -> tuple[torch.Tensor, ...]:
    """Return a network's inputs for at most 512 patches, or 16 clips."""
    most = min(_LOOKED_AT[len(data.inputs(slice(0, 1))[0].shape)], len(data))
    return tuple(data.inputs(torch.linspace(0, len(data) - 1, most).long()))


def _parallel_rows(weight: torch.Tensor, most: float, fewest: int = FEWEST_PARALLEL) -> int:
    """Return how many rows have cosines above `most` with several others; rows of zeros do not."""
    norms = weight.norm(dim=1)
    rows = weight[norms > 1e-6 * norms.max().clamp(min=1e-30)]
    rows = rows / rows.norm(dim=1, keepdim=True)
    cosines = (rows @ rows.T).abs()
    cosines.fill_diagonal_(0)
    return int(((cosines > most).sum(dim=1) >= fewest).sum())


def _correlated_units(answers: torch.Tensor, *, is_drawing: bool) -> int:
    """Return how many units answer like several others; `answers`: shape (samples, units)."""
    if len(answers) < FEWEST_COMPARED:
        return 0
    centred = (answers - answers.mean(0)).T
    centred = centred[centred.norm(dim=1) > 0]
    fewest = FEWEST_PARALLEL_DRAWING if is_drawing else FEWEST_PARALLEL
    return _parallel_rows(centred, MOST_CORRELATION, fewest) if len(centred) else 0


def _usual_share(values: torch.Tensor) -> float:
    """Return to which share of samples a unit answers, in the middle of all answers.

    Half of the answers of all units come from units that answer to fewer; of each unit those to
    `MOST_COUNTED_SHARE` of the samples count. `values` before the ReLU, of shape (samples, units).
    """
    shares = (values > 0).double().mean(dim=0).sort().values
    counted = shares.clamp(max=MOST_COUNTED_SHARE).cumsum(0)
    return float(shares[torch.searchsorted(counted, counted[-1] / 2)])


def _readable(weight: torch.Tensor, bias: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
    """Return for each row whether it comes near to one of the inputs: bool, shape (units,).

    ``weight / bias`` is the mean of the inputs by which the row changed.
    """
    means = weight / torch.where(bias.abs() > 1e-12, bias, torch.inf)[:, None]
    size = inputs.square().sum(1)
    squares = (means.square().sum(1, keepdim=True) - 2 * means @ inputs.T + size).clamp(min=1e-12)
    typical = (inputs - inputs.mean(0)).square().sum(1)
    gain: torch.Tensor = 10 * torch.log10(typical / squares).max(dim=1).values
    return gain > MOST_GAIN_DB


def _readable_pairs(
    weight: torch.Tensor, bias: torch.Tensor, inputs: torch.Tensor, shown: torch.Tensor
) -> torch.Tensor:
    """Return for each row whether its difference to another, or their sum, comes near to an input.

    Rows over nearly the same samples differ by few of them; rows in `shown` are left out.
    """
    left = torch.nonzero(~shown & (weight != 0).any(dim=1)).flatten()
    steps, middle = bias[left].double(), inputs.double().mean(0)
    # About the inputs' mean, so that an input is compared by its distance from it.
    rows, x = weight[left].double() - steps[:, None] * middle, inputs.double() - middle
    among, sizes, near = rows @ rows.T, x.square().sum(1), 10 ** (-MOST_GAIN_OF_PAIRS_DB / 10)
    least, most = (1 - near**0.5) ** 2 * sizes.min(), (1 + near**0.5) ** 2 * sizes.max()
    pairs = torch.zeros(len(left), len(left), dtype=torch.bool)
    for sign in (1, -1):
        step = steps[:, None] - sign * steps
        squares = among.diagonal()[:, None] + among.diagonal() - 2 * sign * among
        squares = squares / step.square()
        # No input is near to a pair that is nearer to the mean, or farther, than all inputs are.
        able = (step.abs() > 1e-12) & (squares > least) & (squares < most)
        for first in range(0, len(x), _COMPARED_AT_ONCE):
            at_once = slice(first, first + _COMPARED_AT_ONCE)
            part, part_sizes = x[at_once], sizes[at_once]
            products, margins = 2 * rows @ part.T, (near - 1) * part_sizes
            for one, others in enumerate(able.triu(1)):
                other = torch.nonzero(others).flatten()
                # |mean - x|^2 < near |x|^2, sorted by what depends on the input.
                nearest = torch.sub(products[one], products[other], alpha=sign)
                nearest.div_(step[one, other][:, None]).add_(margins)
                pairs[one, other] |= nearest.amax(dim=1) > squares[one, other]
    pairs |= pairs.T.clone()
    marked = torch.zeros(len(left), dtype=torch.bool)
    # Without one of its rows a pair shows nothing more.
    while bool((partners := pairs.sum(dim=1)).any()):
        worst = int(partners.argmax())
        marked[worst] = True
        pairs[worst] = pairs[:, worst] = False
    readable = torch.zeros_like(shown)
    readable[left[marked]] = True
    return readable
