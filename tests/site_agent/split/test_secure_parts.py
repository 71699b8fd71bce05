"""Client parts through the secure sum: the mean is that of plain FedAvg, and no server saw a part.

Split rounds between processes do not do this: a secure sum takes two visits of each lab to a board,
and their part aggregator averages a round at once. This shows that the parts are fit for it.
"""

from pathlib import Path

import numpy as np
import pytest

from aggregators.formats import read_model, write_model
from aggregators.methods import merge
from aggregators.methods.networks.round_files import write_network_contribution
from aggregators.models import StateDict
from site_agent.networks.modules import new_network
from site_agent.secure.contributions import encode_network_file
from site_agent.split.parts import split_network
from site_agent.split.plan import SplitPlan
from site_agent.split.training import ServerHalf, contribution_of, train_client
from tests.site_agent.federated.small_sites import small_sites
from tests.site_agent.secure.parties import create_parties


@pytest.mark.parametrize("mean", ["samples", "sites"])
def test_the_secure_sum_of_client_parts_is_plain_fedavg(tmp_path: Path, mean: str) -> None:
    plan = SplitPlan.model_validate({"rounds": 1, "mean": mean})
    parts = split_network(new_network("gaze-lenet", 1), plan.found_cut)
    base = tmp_path / "client-part.safetensors"
    digest = write_model(parts.client, base)
    parties = create_parties(tmp_path / "parties", labs=3)
    sent, shared = [], {}
    for lab, (site, samples) in zip(parties.charter.labs, small_sites().items(), strict=True):
        half = ServerHalf(parts.server, plan, 1)
        made = train_client(parts.client, samples, plan, half, site=site, round_number=1)
        sent.append(tmp_path / f"{site}.contribution")
        contribution = contribution_of(made.differences, made.samples, digest, plan)
        write_network_contribution(contribution, sent[-1])
        shared[lab] = encode_network_file(sent[-1], base, parties.charter.budget, mean=mean)
    combined = parties.sum_of(shared, tmp_path / "combined.contribution")
    results = []
    for name, files in (("plain", sent), ("secure", [combined])):
        output = tmp_path / f"{name}.safetensors"
        merge("fedavg", [base, *files], options={"mean": mean}, output=output)
        results.append(read_model(output))
    plain, secure = results
    assert isinstance(plain, StateDict)
    assert isinstance(secure, StateDict)
    for name, values in plain.tensors.items():
        assert np.abs(values - secure.tensors[name]).max() <= 1e-6
        assert np.abs(values - parts.client.tensors[name]).max() > 1e-5
