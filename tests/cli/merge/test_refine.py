"""``poolctl refine`` from files to files."""

from pathlib import Path

import pytest

from site_agent.datasets.imglab_xml import read_imglab_xml
from site_agent.training.ert import ErtSettings, train_ert
from tests.cli.conftest import Run
from tests.site_agent.face_data import draw_faces


@pytest.fixture(scope="module")
def site_faces(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("sites")
    return [draw_faces(folder / f"site{seed}", 8, 4, seed) for seed in (1, 2)]


@pytest.fixture(scope="module")
def base(site_faces: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("models") / "base.dat"
    settings = ErtSettings(num_trees_per_cascade_level=15, cascade_depth=3, tree_depth=3)
    faces = read_imglab_xml(site_faces[0])
    return train_ert(faces, output, settings, training_scores=False).model_path


def test_refined_models_have_a_smaller_error(
    poolctl: Run, base: Path, site_faces: list[Path], tmp_path: Path
) -> None:
    output = tmp_path / "refined.dat"
    arguments = ("refine", *site_faces, "--base", base, "-o", output, "--set=starts=4")
    data = poolctl(*arguments, "--rounds", 2, "--json").data
    assert output.is_file()
    assert data["rounds"] == 2
    assert [site["faces"] for site in data["sites"]] == [8, 8]
    assert [site["name"] for site in data["sites"]] == ["faces", "faces-2"]
    assert Path(data["recipe_file"]).is_file()
    models = (base, output.rename(tmp_path / "elsewhere.dat"))
    scored = poolctl("evaluate", *models, site_faces[1], "--set=resamples=0", "--json")
    before, after = (item["mean_error"] for item in scored.data["items"])
    assert after < before
    assert "all 8 images are those that refined.dat was trained on" in scored.err


def test_kept_contributions_make_the_model_again(
    poolctl: Run, base: Path, site_faces: list[Path], tmp_path: Path
) -> None:
    together, merged = tmp_path / "together.dat", tmp_path / "refined.dat"
    arguments = ("refine", *site_faces, "--base", base, "-o", together, "--set=starts=4", "-q")
    assert poolctl(*arguments).code == 0
    kept, moved = tmp_path / "together.dat.contributions", tmp_path / "moved"
    sent = sorted(kept.iterdir())
    assert poolctl("merge", "leaf-refit", base, *sent, "-o", merged, "-q").code == 0
    assert together.read_bytes() == merged.read_bytes()
    replay = ("merge", "--replay", f"{together}.recipe.json", base, "-o", tmp_path / "same.dat")
    assert poolctl(*replay, "-q").code == 0, "its contributions lie next to it"
    kept.rename(moved)
    sent = sorted(moved.iterdir())
    recipe = tmp_path / "study" / "models" / "refined.dat.recipe.json"
    for folder in (recipe.parent, tmp_path / "study" / ".study"):
        folder.mkdir(parents=True)
    Path(f"{together}.recipe.json").rename(recipe)
    lost = poolctl("merge", "--replay", recipe, base, "-o", tmp_path / "lost.dat", "--json")
    assert lost.error["message"].count("which the study deleted when it was combined") == 2
    again = tmp_path / "again.dat"
    replayed = poolctl("merge", "--replay", f"{merged}.recipe.json", base, *sent, "-o", again, "-q")
    assert replayed.code == 0, replayed.err
    assert again.read_bytes() == merged.read_bytes()


def test_refine_says_what_is_wrong_with_its_words(
    poolctl: Run, base: Path, site_faces: list[Path], tmp_path: Path
) -> None:
    faces = site_faces[0]
    output = ("-o", tmp_path / "refined.dat")
    wrong = [
        ((faces, "--base", base), 2, "--output"),
        ((faces, "--base", base, "-o", base), 7, "already exists"),
        ((faces, "--base", base, *output, "--set=mode=all-at-once"), 2, "mode"),
        ((tmp_path / "none.xml", "--base", base, *output), 4, "none.xml"),
        ((faces, "--base", base, *output, "--parts", "00,01"), 5, "2 landmarks"),
    ]
    for arguments, code, text in wrong:
        outcome = poolctl("refine", *arguments, "--json")
        assert outcome.code == code, (arguments, outcome)
        assert text in outcome.error["message"], outcome.error
    assert list(tmp_path.iterdir()) == []
