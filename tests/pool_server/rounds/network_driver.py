"""Small networks as bases of rounds, and contributions that fit them."""

from dataclasses import replace
from typing import Any

import numpy as np

from aggregators.formats import encode_model
from aggregators.methods.round_options import LocalTraining
from aggregators.models import NetworkContribution, StateDict
from tests.aggregators.methods.networks.small_rounds import make_base
from tests.pool_server.pool_driver import PoolDriver, upload
from tests.pool_server.rounds.round_driver import SITES

TRAINING = {"epochs": 2, "seed": 7}


def upload_network(pool: PoolDriver, name: str, seed: int) -> tuple[StateDict, str]:
    """Upload a network as a base for rounds; gives it and its address."""
    base = make_base(5000 + seed, "f4")
    pool.secret(SITES[0], "contributor")
    upload(pool.member(SITES[0]), f"{SITES[0]}/{name}", bytes(encode_model(base)))
    return base, f"pool://{SITES[0]}/{name}@1"


def network_contribution(
    base: StateDict, base_digest: str, seed: int, **changed: Any
) -> NetworkContribution:
    """Return differences that fit a base, except for `changed`."""
    random = np.random.default_rng(seed)
    tensors = {
        name: tensor
        if tensor.dtype.kind == "i"
        else (0.1 * random.standard_normal(tensor.shape)).astype(tensor.dtype)
        for name, tensor in base.tensors.items()
    }
    settings = LocalTraining.model_validate(TRAINING).shared()
    made = NetworkContribution(
        StateDict(tensors, base.infos), "differences", 10 + seed, base_digest, settings
    )
    return replace(made, **changed)
