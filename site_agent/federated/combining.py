"""Combining the contributions of one round: with files, or in memory with the same bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import cast

from aggregators.formats import decode_model, encode_model
from aggregators.methods.contract import no_progress
from aggregators.methods.merging import Merged, encode_input, merge
from aggregators.methods.networks.round_files import decode_optimiser_state
from aggregators.methods.registry import find_method
from aggregators.methods.sub_models import collect_sub_models
from aggregators.models import MergeInput, NetworkContribution, OptimiserState, StateDict
from site_agent.federated.plan import FederationPlan


@dataclass(frozen=True, eq=False)
class RoundModel:
    """A network between two rounds.

    Attributes
    ----------
    digest : str
        SHA-256 of the network's file.
    state : OptimiserState or None
        What the method takes along to the next round.
    """

    network: StateDict
    digest: str
    state: OptimiserState | None = None


@dataclass(frozen=True, eq=False)
class CombinedRound:
    """The result of one round.

    Attributes
    ----------
    update_digests : mapping of str to str
        SHA-256 of each contribution's file, by site.
    warnings : tuple of str
    """

    model: RoundModel
    update_digests: Mapping[str, str]
    warnings: tuple[str, ...]


def first_model(network: StateDict) -> RoundModel:
    """Return the base of the first round."""
    return RoundModel(network, sha256(encode_model(network)).hexdigest())


def combine_files(
    plan: FederationPlan,
    base: Path,
    state: Path | None,
    contributions: Mapping[str, Path],
    output: Path,
) -> Merged:
    """Write the network that a round makes to `output`, with its recipe and its state beside it.

    Parameters
    ----------
    state : Path or None
        The state that was written beside the base; None in the first round, and for methods
        without one.
    contributions : mapping of str to Path
        By site.

    Raises
    ------
    AggregatorError
        As `aggregators.merge`.
    """
    files = [contributions[site] for site in sorted(contributions)]
    inputs = [base, *([] if state is None else [state]), *files]
    return merge(plan.method, inputs, options=plan.method_options, output=output)


def combine(
    plan: FederationPlan, base: RoundModel, contributions: Mapping[str, NetworkContribution]
) -> CombinedRound:
    """Return the network that a round makes: the same bytes as by `combine_files`.

    Raises
    ------
    AggregatorError
        As `aggregators.merge`.
    """
    method = find_method(plan.method)
    sites = sorted(contributions)
    digests = {site: sha256(encode_input(contributions[site])).hexdigest() for site in sites}
    models: list[MergeInput] = [base.network, *(contributions[site] for site in sites)]
    keys = [base.digest, *digests.values()]
    names = ["the base", *sites]
    if base.state is not None:
        models.append(base.state)
        # It takes part in no sum, so that its digest does not matter.
        keys.append("state")
        names.append("the state")
    options = method.options_type.model_validate(plan.method_options)
    combined = method.combine(collect_sub_models(models, keys, names), options, no_progress)
    # The entries are computed from the inputs each time they are read, until they are bytes.
    content = encode_model(combined.model)
    digest = sha256(content).hexdigest()
    state = combined.state
    if state is not None:
        state = decode_optimiser_state(encode_input(replace(state, network_digest=digest)))
    network = cast("StateDict", decode_model(content))
    return CombinedRound(RoundModel(network, digest, state), digests, combined.warnings)
