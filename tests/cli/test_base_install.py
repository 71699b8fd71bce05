"""A lab that installs no extra has everything but the parts that need one, and those say so.

Libraries of extras are made unimportable in a fresh interpreter.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from aggregators.formats import write_model
from cli.frame.errors import EXTRA_OF_LIBRARY
from tests.aggregators.small_models import make_detector
from tests.cli.conftest import Outcome
from tests.cli.test_conventions import ALL_COMMANDS
from tests.conftest import PROJECT_ROOT
from tests.site_agent.faces.test_prediction import small_predictor

WITHOUT_EXTRAS = (
    "import sys\n"
    f"for library in {sorted(EXTRA_OF_LIBRARY)}: sys.modules[library] = None\n"
    "from cli.frame.app import main\n"
)


def run_without_extras(*arguments: object) -> Outcome:
    code = f"{WITHOUT_EXTRAS}sys.exit(main({[str(word) for word in arguments]!r}))"
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=PROJECT_ROOT, capture_output=True, text=True, check=False
    )
    return Outcome(result.returncode, result.stdout, result.stderr)


def test_every_help_page_can_be_read() -> None:
    code = (
        f"{WITHOUT_EXTRAS}"
        f"for words in {list(ALL_COMMANDS)!r}:\n"
        "    assert main([*words.split(), '--help']) == 0, words\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=PROJECT_ROOT, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr


def test_merging_and_inspecting_need_no_extra(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_model(make_detector(ord(name)), tmp_path / f"{name}.svm")
    merged = tmp_path / "m.svm"
    arguments = ("merge", "mwma", tmp_path / "a.svm", tmp_path / "b.svm", "-o", merged, "--json")
    assert run_without_extras(*arguments).data["output"] == str(merged)
    shown = run_without_extras("inspect", merged, "--json")
    assert shown.data["fingerprint"]["kind"] == "hog-svm"
    extras = run_without_extras("env", "--json").data["extras"]
    assert not any(extras[name] for name in ("vision", "gaze"))


@pytest.mark.parametrize(
    ("extra", "arguments"),
    [
        ("server", ["serve", "--data", "{folder}/pool"]),
        ("vision", ["predict", "{folder}/a.png", "--detector", "stock"]),
        ("vision", ["blink", "{folder}/a.mp4", "--landmarks", "{folder}/a.dat"]),
        ("vision", ["dataset", "draw", "video", "{folder}/b.mp4"]),
    ],
)
def test_what_needs_an_extra_names_it(extra: str, arguments: list[str], tmp_path: Path) -> None:
    from PIL import Image

    Image.new("RGB", (64, 64)).save(tmp_path / "a.png")
    (tmp_path / "a.mp4").write_bytes(b"no matter")
    write_model(small_predictor(68), tmp_path / "a.dat")
    filled = [word.format(folder=tmp_path) for word in arguments]
    shown = run_without_extras(*filled, "--json")
    assert shown.code == 2, shown.out + shown.err
    error = json.loads(shown.out)["error"]
    assert error["code"] == "missing_extra"
    assert f'pip install "poolctl[{extra}]"' in error["message"]
