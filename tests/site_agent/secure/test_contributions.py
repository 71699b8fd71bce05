"""Secure rounds against plain ones, from files to the merged model."""

from pathlib import Path

import numpy as np
import pytest

from aggregators.methods.leaf_refit import mean_change
from aggregators.methods.refitting import RefitSettings, read_contribution, write_contribution
from aggregators.models import LeafContribution
from site_agent.errors import InvalidInputError
from site_agent.secure.sums import encode_leaf_presence, encode_leaf_sums, read_presence
from tests.site_agent.secure.parties import BASE_DIGEST, create_parties


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
