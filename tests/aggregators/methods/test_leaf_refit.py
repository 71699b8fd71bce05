"""The laws of combining contributions, their files, and the refined model."""

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from aggregators import encode_model, fingerprint, merge, merge_keys, read_model, write_model
from aggregators.errors import FormatError, IncompatibleModelsError, OptionError, RecipeError
from aggregators.formats import file_digest
from aggregators.methods import read_recipe, recipe_path, replay
from aggregators.methods.refitting import (
    RefitSettings,
    contribute,
    encode_contribution,
    forest_digest,
    read_contribution,
    thin_base,
    write_contribution,
)
from aggregators.methods.refitting.contribution_file import decode_contribution
from aggregators.models import LeafContribution, ShapePredictor
from tests.aggregators.methods.refitting.small_sites import make_base, make_faces
from tests.aggregators.small_models import make_detector, make_ensemble

BASE = make_base()
SETTINGS = RefitSettings(starts=4, nu=0.2)


def made(site: int, base: ShapePredictor = BASE, **changes: object) -> LeafContribution:
    return contribute(base, make_faces(site), SETTINGS.model_copy(update=changes))


def refined(*inputs: object, weights: list[float] | None = None) -> ShapePredictor:
    model = merge("leaf-refit", list(inputs), weights=weights).model  # type: ignore[arg-type]
    assert isinstance(model, ShapePredictor)
    return model


def test_the_base_alone_comes_back() -> None:
    assert encode_model(refined(BASE)) == encode_model(BASE)
    assert encode_model(refined(BASE, BASE)) == encode_model(BASE)


def test_one_contribution_is_added_to_the_leaves() -> None:
    contribution = made(1)
    result = refined(BASE, contribution)
    np.testing.assert_array_equal(
        result.leaves, (BASE.leaves.astype(np.float64) + contribution.changes).astype(np.float32)
    )
    for name in ("initial_shape", "tree_depths", "split_idx1", "split_thresholds", "deltas"):
        np.testing.assert_array_equal(getattr(result, name), getattr(BASE, name))


def test_contributions_are_averaged_by_their_counts() -> None:
    first, second = made(1), made(2, starts=9)
    result = refined(BASE, first, second, weights=[1, 1, 3])
    n1, n2 = first.counts.astype(float), 3.0 * second.counts
    total = np.maximum(n1 + n2, 1)[:, None, None]
    changes = (first.changes * n1[:, None, None] + second.changes * n2[:, None, None]) / total
    np.testing.assert_allclose(result.leaves, BASE.leaves + changes, atol=1e-7)


def test_the_order_of_the_inputs_does_not_matter() -> None:
    weighted = [(BASE, 1.0), (made(1), 0.3), (made(2), 1.0), (made(3), 2.5)]
    results = {
        encode_model(refined(*inputs, weights=list(weights)))
        for order in itertools.permutations(weighted)
        for inputs, weights in [zip(*order, strict=True)]
    }
    assert len(results) == 1


def test_contributions_without_samples_change_nothing() -> None:
    empty = made(1, min_faces=10_000)
    assert encode_model(refined(BASE, empty)) == encode_model(BASE)
    other = made(2)
    assert encode_model(refined(BASE, empty, other)) == encode_model(refined(BASE, other))


def test_later_rounds_are_added_to_what_the_earlier_made() -> None:
    first_round = [made(1), made(2)]
    middle = refined(BASE, *first_round)
    second_round = [made(1, middle, seed=1), made(2, middle, seed=1)]
    expected = encode_model(refined(middle, *second_round))
    together = [second_round[1], first_round[0], BASE, second_round[0], first_round[1]]
    assert encode_model(refined(*together)) == expected
    with pytest.raises(IncompatibleModelsError, match=r"base forest .*that round"):
        refined(BASE, first_round[0], *second_round)


def test_a_thinned_base_stays_thin() -> None:
    contributions = [made(seed, thin=2) for seed in (1, 2)]
    result = refined(BASE, *contributions)
    assert result.trees_per_level.tolist() == [2, 2, 2]
    assert result.leaves.shape == thin_base(BASE, 2).leaves.shape
    with pytest.raises(IncompatibleModelsError, match=r"thin (2 against None|None against 2)"):
        refined(BASE, contributions[0], made(3))


def test_inputs_that_do_not_belong_together_are_refused() -> None:
    contribution = made(1)
    with pytest.raises(IncompatibleModelsError, match="base forest"):
        refined(make_base(5), contribution)
    with pytest.raises(IncompatibleModelsError, match=r"1, the base against 0 .*also give"):
        refined(contribution)
    with pytest.raises(IncompatibleModelsError, match=r"against 2 .*wba-cascade"):
        refined(BASE, make_base(5), contribution)
    with pytest.raises(IncompatibleModelsError, match="HOG-SVM detector"):
        refined(make_detector(1), contribution)
    with pytest.raises(IncompatibleModelsError, match="ensemble"):
        refined(make_ensemble(1), contribution)
    with pytest.raises(IncompatibleModelsError, match="is a leaf-refit contribution"):
        merge("wba-cascade", [BASE, contribution])
    with pytest.raises(OptionError, match="has no option 'nu'"):
        merge("leaf-refit", [BASE, contribution], options={"nu": 0.1})
    cut = replace(contribution, changes=contribution.changes[:-1], counts=contribution.counts[:-1])
    with pytest.raises(IncompatibleModelsError, match="leaves"):
        refined(BASE, cut)


def test_the_recipe_gives_the_same_bytes_again(tmp_path: Path) -> None:
    write_model(BASE, tmp_path / "base.dat")
    files = [tmp_path / "base.dat"]
    for seed in (1, 2, 3):
        files.append(tmp_path / f"site-{seed}.contribution")
        digest = write_contribution(made(seed), files[-1])
        assert digest == file_digest(files[-1])
    output = tmp_path / "refined.dat"
    merged = merge("leaf-refit", files, output=output)
    by_digest = {file_digest(path): path for path in files}
    recipe = read_recipe(recipe_path(output))
    assert recipe.input_digests == tuple(by_digest)
    replay(recipe, by_digest.__getitem__, tmp_path / "again.dat")
    assert (tmp_path / "again.dat").read_bytes() == output.read_bytes()
    assert encode_model(refined(BASE, *(made(seed) for seed in (1, 2, 3)))) == output.read_bytes()

    left_out = file_digest(files[2])
    replay(recipe, by_digest.__getitem__, tmp_path / "without.dat", without=left_out)
    expected = encode_model(refined(BASE, made(1), made(3)))
    assert (tmp_path / "without.dat").read_bytes() == expected
    del by_digest[left_out]
    with pytest.raises(RecipeError, match=r"site-2.contribution.* is missing"):
        replay(merged.recipe, by_digest.__getitem__, tmp_path / "again.dat")


def test_the_digest_of_a_forest_is_that_of_its_content(tmp_path: Path) -> None:
    digests = {forest_digest(BASE)}
    for name in ("base.dat", "base.forest"):
        write_model(BASE, tmp_path / name)
        digests.add(forest_digest(read_model(tmp_path / name)))  # type: ignore[arg-type]
    negative = BASE.leaves.copy()
    negative[0, 0, 0] = -0.0
    zero = np.where(negative == 0, np.float32(0), negative)
    assert len(digests) == 1
    assert forest_digest(replace(BASE, leaves=negative)) == forest_digest(
        replace(BASE, leaves=zero)
    )
    assert forest_digest(replace(BASE, leaves=zero)) not in digests


def test_contribution_files_hold_what_was_sent(tmp_path: Path) -> None:
    contribution = made(1)
    path = tmp_path / "a.contribution"
    write_contribution(contribution, path)
    assert path.read_bytes() == encode_contribution(contribution)
    read = read_contribution(path)
    np.testing.assert_array_equal(read.changes, contribution.changes)
    np.testing.assert_array_equal(read.counts, contribution.counts)
    assert (read.base_digest, read.settings) == (contribution.base_digest, contribution.settings)
    assert b"seed" not in path.read_bytes()[:1000]
    assert "leaf-refit" not in merge_keys(fingerprint(BASE))


def test_malformed_contributions_are_refused(tmp_path: Path) -> None:
    good = made(1)
    undefined = good.changes.copy()
    undefined[3, 1, 0] = np.nan
    uncounted = good.counts.copy()
    uncounted[np.argmax(np.abs(good.changes).sum(axis=(1, 2)))] = 0
    bad = {
        "finite numbers": replace(good, changes=undefined),
        "without samples": replace(good, counts=uncounted),
        "64 hexadecimal": replace(good, base_digest="../../etc"),
        "metadata settings": replace(good, settings={"nu": 5}),
        "has no|settings": replace(good, settings={"shell": "rm"}),
        r"\(leaves, parts, 2\)": replace(good, changes=good.changes.reshape(-1, 20)),
    }
    for message, contribution in bad.items():
        path = tmp_path / "bad.contribution"
        path.write_bytes(encode_contribution(contribution))
        with pytest.raises(FormatError, match=message) as caught:
            read_contribution(path)
        assert str(path) in str(caught.value)
    content = encode_contribution(good)
    for cut in (0, 5, 40, 300, len(content) - 1):
        with pytest.raises(FormatError):
            decode_contribution(content[:cut])
    other = content.replace(b"poolctl-leaf-contribution", b"poolctl-leaf-contributiom")
    with pytest.raises(FormatError, match="metadata format"):
        decode_contribution(other)
