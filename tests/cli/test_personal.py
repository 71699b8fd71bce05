"""``poolctl personal``: a site's part of a network is shown, exported and never uploaded."""

from pathlib import Path

import pytest

from aggregators import file_digest, write_model
from aggregators.methods import recipe_path
from aggregators.methods.recipe import Recipe, RecipeInput, RecipeMethod, RecipeOutput
from site_agent.federated.in_process import run_rounds
from site_agent.federated.personal import PersonalStore
from site_agent.federated.plan import make_plan
from site_agent.networks.modules import new_network
from site_agent.training_record import recall_learned, remember_learned
from tests.cli.conftest import Run
from tests.site_agent.federated.small_sites import small_sites

SERIES = "3f2a9c1e0b7d4a65"


@pytest.fixture
def result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Hold two rounds of fedper, keep the part of one site, and return the network of all."""
    monkeypatch.setenv("POOL_HOME", str(tmp_path / "home"))
    sites = dict(list(small_sites().items())[:2])
    plan = make_plan("fedper", {"batch_size": 8}, rounds=2)
    last = list(run_rounds(new_network("gaze-lenet"), sites, plan))[-1]
    PersonalStore(tmp_path / "home" / "personal" / SERIES).keep(last.parts["site-0"])
    path = tmp_path / "result.safetensors"
    write_model(last.model.network, path)
    return path


def test_a_part_is_shown_exported_and_refused_by_upload(
    poolctl: Run, result: Path, tmp_path: Path
) -> None:
    listed = poolctl("personal", "ls", "--json").data
    assert [(part["series"], part["site"], part["round"]) for part in listed] == [
        (SERIES, "site-0", 2)
    ]
    shown = poolctl("personal", "ls").out
    assert "0.1%" in shown
    assert "fedper" in shown
    mine = tmp_path / "mine.safetensors"
    assert poolctl("personal", "export", SERIES, "--network", result, "-o", mine).code == 0
    for path in (mine, Path(listed[0]["file"])):
        assert poolctl("upload", path, "--name", "site-0/mine", "--json").code == 5
    assert mine.read_bytes() != result.read_bytes()
    other = ("personal", "export", "0" * 16, "--network", result, "-o", tmp_path / "x", "--json")
    poolctl(*other).fails(4, "file_not_found")
    learned = {"data": {"digest": "", "image_marks": ["ab"]}, "details": {}}
    for base, fits in ((listed[0]["base"], True), ("0" * 64, False)):
        remember_learned(base, {"name": "before", **learned})
        made = RecipeOutput(digest=file_digest(result), format="safetensors")
        recipe = Recipe(
            method=RecipeMethod(name="fedper", version=1),
            inputs=(RecipeInput(digest=base, weight=1.0),),
            output=made,
        )
        recipe_path(result).write_bytes(recipe.to_json())
        exported = poolctl("personal", "export", SERIES, "--network", result, "-o", mine, "--force")
        assert ("may not belong together" in exported.err) != fits
        known = recall_learned(file_digest(mine))
        assert known is not None
        assert known["data"]["image_marks"] == ["ab"], "of the round's contributions"
