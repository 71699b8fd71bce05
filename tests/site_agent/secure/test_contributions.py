"""Secure rounds against plain ones, from files to the merged model."""

from pathlib import Path

import numpy as np
import pytest

from aggregators.errors import ConversionError, FormatError
from aggregators.formats import read_model, write_model
from aggregators.methods import merge
from aggregators.methods.leaf_refit import mean_change
from aggregators.methods.networks.round_files import write_network_contribution
from aggregators.methods.refitting import RefitSettings, read_contribution, write_contribution
from aggregators.models import LeafContribution, NetworkContribution, StateDict, TensorInfo
from site_agent.errors import InvalidInputError
from site_agent.secure.sums import (
    encode_leaf_presence,
    encode_leaf_sums,
    encode_network_file,
    read_presence,
)
from tests.site_agent.secure.parties import BASE_DIGEST, create_parties


@pytest.mark.parametrize("mean", ["samples", "sites"])
def test_a_secure_round_of_a_network_gives_what_a_plain_one_gives(folder: Path, mean: str) -> None:
    parties = create_parties(folder)
    generator = np.random.default_rng(8)
    infos = {
        "features.weight": TensorInfo("F32", (40, 30)),
        "norm.running_var": TensorInfo("F32", (40,)),
        "norm.num_batches_tracked": TensorInfo("I64", ()),
    }

    def network() -> StateDict:
        tensors = {
            name: generator.normal(0, 1, info.shape).astype(np.float32)
            if info.dtype == "F32"
            else np.array(generator.integers(100), dtype=np.int64)
            for name, info in infos.items()
        }
        return StateDict(tensors, infos)

    base = folder / "base.safetensors"
    digest = write_model(network(), base)
    files, inputs = [], {}
    for number, name in enumerate(parties.charter.labs):
        files.append(folder / f"{name}.contribution")
        trained = NetworkContribution(network(), "values", 100 + 17 * number, digest, {})
        write_network_contribution(trained, files[-1])
        inputs[name] = encode_network_file(files[-1], base, parties.charter.budget, mean=mean)
    combined = parties.sum_of(inputs, folder / "combined.contribution")
    options = {"mean": mean}
    merge("fedavg", [base, *files], options=options, output=folder / "plain.safetensors")
    merge("fedavg", [base, combined], options=options, output=folder / "secure.safetensors")
    plain, secure = (read_model(folder / f"{item}.safetensors") for item in ("plain", "secure"))
    assert isinstance(plain, StateDict)
    assert isinstance(secure, StateDict)
    for name in ("features.weight", "norm.running_var"):
        assert np.abs(plain.tensors[name] - secure.tensors[name]).max() <= 1e-6
    write_network_contribution(
        NetworkContribution(network(), "values", 10**6, digest, {}), files[0]
    )
    with pytest.raises(ConversionError, match="found 1000000, expected 0 to 65536"):
        encode_network_file(files[0], base, parties.charter.budget)
    with pytest.raises(FormatError):
        encode_network_file(base, base, parties.charter.budget)


def test_secure_leaf_refinement_equals_the_plain_one_where_three_labs_reach(folder: Path) -> None:
    parties = create_parties(folder, labs=5)
    generator = np.random.default_rng(3)
    budget, settings = parties.charter.budget, RefitSettings().shared()
    labs, files = [], {}
    for name in parties.charter.labs:
        counts = generator.integers(1, 60, 64) * (generator.random(64) < 0.5)
        changes = generator.normal(0, 0.02, (64, 4, 2)) * (counts > 0)[:, np.newaxis, np.newaxis]
        labs.append(
            LeafContribution(
                changes.astype(np.float32), counts.astype(np.uint32), BASE_DIGEST, settings
            )
        )
        files[name] = folder / f"{name}.contribution"
        write_contribution(labs[-1], files[name])
    first = {name: encode_leaf_presence(path, budget) for name, path in files.items()}
    reached = read_presence(parties.sum_of(first, folder / "presence"))
    assert reached.tolist() == np.sum([lab.counts > 0 for lab in labs], axis=0).tolist()
    least = parties.charter.terms.least_labs
    second = {name: encode_leaf_sums(path, reached, least, budget) for name, path in files.items()}
    combined = read_contribution(parties.sum_of(second, folder / "combined.contribution"))
    plain = mean_change([(lab.changes, lab.counts.astype(np.float64)) for lab in labs])
    kept = reached >= least
    assert 0 < kept.sum() < 64
    assert np.abs(combined.changes[kept] - plain[kept]).max() < 1e-7
    assert not combined.changes[~kept].any()
    assert combined.counts[kept].tolist() == np.sum([x.counts for x in labs], axis=0)[kept].tolist()
    assert not combined.counts[~kept].any()
    (folder / "odd").write_bytes(b"123")
    with pytest.raises(InvalidInputError, match="not the result of a session"):
        read_presence(folder / "odd")
