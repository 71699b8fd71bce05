"""The public names of the package, which are imported at first use."""

import subprocess
import sys

import pytest

import aggregators


def loaded_by(statement: str) -> set[str]:
    code = f"import sys; {statement}; print(*sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, text=True
    )
    return set(result.stdout.split())


def test_importing_the_package_loads_no_heavy_library() -> None:
    heavy = {"numpy", "numba", "pydantic", "dlib", "safetensors", "PIL"}
    assert not loaded_by("import aggregators") & heavy


def test_methods_and_predictors_do_not_load_the_compiler_or_dlib() -> None:
    statement = "from aggregators import merge, LandmarkPredictor"
    assert not loaded_by(statement) & {"numba", "llvmlite", "dlib", "cv2", "torch"}


def test_a_notebook_shows_models_without_their_numbers() -> None:
    from tests.aggregators.small_models import make_detector
    from tests.site_agent.faces.test_prediction import small_predictor

    assert "weights=<float64 (1, 4464)>" in repr(make_detector(1))
    assert len(repr(small_predictor())) < 500


@pytest.mark.parametrize("name", aggregators.__all__)
def test_public_names_exist(name: str) -> None:
    assert getattr(aggregators, name) is not None
    assert name in dir(aggregators)
