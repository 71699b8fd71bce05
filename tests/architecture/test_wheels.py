"""Wheels of all that a site installs exist for Windows and macOS at the locked versions."""

import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.architecture.test_lock import ROOT, read_lock

EXTRAS = ("vision", "gaze")
WINDOWS = {
    "os_name": "nt",
    "sys_platform": "win32",
    "platform_system": "Windows",
    "platform_machine": "AMD64",
}
MACOS = {
    "os_name": "posix",
    "sys_platform": "darwin",
    "platform_system": "Darwin",
    "platform_machine": "arm64",
}


def list_packages(system: dict[str, str]) -> set[str]:
    """Return the names of all packages that the project needs on a system with `EXTRAS`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    first = [Requirement(text) for text in project["dependencies"]]
    first += [Requirement(text) for extra in EXTRAS for text in extras[extra]]
    waiting = [
        (canonicalize_name(requirement.name), part)
        for requirement in first
        for part in ("", *requirement.extras)
    ]
    names, seen = {name for name, _ in waiting}, set(waiting)
    while waiting:
        name, extra = waiting.pop()
        try:
            requirements = [Requirement(text) for text in requires(name) or ()]
        except PackageNotFoundError:
            continue  # not needed on this system: what it needs itself is not known here
        for requirement in requirements:
            if requirement.marker and not requirement.marker.evaluate({**system, "extra": extra}):
                continue
            dependency = canonicalize_name(requirement.name)
            names.add(dependency)
            entries = {(dependency, part) for part in ("", *requirement.extras)} - seen
            waiting += entries
            seen |= entries
    return names


@pytest.mark.slow
@pytest.mark.parametrize(
    ("system", "tags"),
    [
        pytest.param(WINDOWS, ("win_amd64",), id="windows"),
        pytest.param(MACOS, ("macosx_14_0_arm64", "macosx_12_0_arm64"), id="macos"),
    ],
)
def test_wheels_of_the_locked_versions_exist(
    system: dict[str, str], tags: tuple[str, ...], tmp_path: Path
) -> None:
    locked = read_lock()
    names = list_packages(system)
    assert {"dlib-bin", "av", "opencv-python-headless", "torch", "numba", "psutil"} <= names
    # Packages that only these systems need are not in the lock of Linux. torch's build there
    # has a local version.
    pinned = [
        f"{name}=={locked[name].partition('+')[0]}" if name in locked else name for name in names
    ]
    tag_options = [word for tag in tags for word in ("--platform", tag)]
    process = subprocess.run(
        [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--no-deps"),
            *("--only-binary", ":all:", "--python-version", "3.11", *tag_options),
            *("--ignore-installed", "--target", str(tmp_path), *sorted(pinned)),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
