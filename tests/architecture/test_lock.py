"""The lock: installed versions, known weaknesses, and wheels for Windows and macOS."""

import json
import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, distributions, requires
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]

LINE = re.compile(r"(\S+)==(\S+) --hash=sha256:[0-9a-f]{64}")

ADVISORIES = "POOLCTL_TEST_ADVISORIES"

"""The folder of a copy of the Python packaging advisory database (OSV, JSON or YAML)."""


def read_lock() -> dict[str, str]:
    text = (ROOT / ".ci" / "requirements.lock").read_text()
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    matches = [LINE.fullmatch(line) for line in lines]
    assert all(matches), "each line names one version and its hash, and no place to get it from"
    return {canonicalize_name(match[1]): match[2] for match in matches if match}


def test_the_lock_has_a_version_of_all_that_the_project_needs() -> None:
    locked = read_lock()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    needed = [
        Requirement(requirement)
        for some in [project["dependencies"], *extras]
        for requirement in some
    ]
    unmet = [
        str(requirement)
        for requirement in needed
        if requirement.name != "poolctl"
        and not requirement.specifier.contains(locked.get(canonicalize_name(requirement.name), "0"))
    ]
    assert unmet == []


def test_the_lock_is_what_these_tests_run_with() -> None:
    installed = {canonicalize_name(package.name): package.version for package in distributions()}
    locked = read_lock()
    others = [
        f"{name} {installed.get(name)}, not {version}"
        for name, version in locked.items()
        if installed.get(name) != version
    ]
    if others:
        pytest.skip(f"these tests run with other packages than the lock has: {', '.join(others)}")
    assert set(installed) - set(locked) <= {"pip", "poolctl"}


def test_the_lock_has_no_known_weakness() -> None:
    folder = os.environ.get(ADVISORIES)
    if not folder:
        pytest.skip(f"no advisory database at hand; {ADVISORIES} names the folder of one")
    assert find_weaknesses(read_lock(), Path(folder)) == []


def test_an_advisory_is_found_by_range_and_by_version(tmp_path: Path) -> None:
    def write(name: str, **affected: Any) -> None:
        entry = {"id": name, "affected": [{"package": {"name": "Lab_Tool"}, **affected}]}
        (tmp_path / f"{name}.json").write_text(json.dumps(entry))

    write("by-version", versions=["1.2"])
    write("by-range", ranges=[{"events": [{"introduced": "0"}, {"fixed": "1.10"}]}])
    write("mended", ranges=[{"events": [{"introduced": "0"}, {"fixed": "1.2"}]}])
    assert find_weaknesses({"lab-tool": "1.2"}, tmp_path) == ["by-range", "by-version"]


def find_weaknesses(locked: dict[str, str], folder: Path) -> list[str]:
    """Return the names of the advisories in a folder that concern a locked version."""
    paths = sorted(path for path in folder.rglob("*") if path.suffix in {".json", ".yaml"})
    entries = [yaml.safe_load(path.read_text()) for path in paths]
    return [
        entry["id"]
        for entry in entries
        if not entry.get("withdrawn")
        and any(concerns(locked, affected) for affected in entry.get("affected", []))
    ]


def concerns(locked: dict[str, str], affected: dict[str, Any]) -> bool:
    version = locked.get(canonicalize_name(affected["package"]["name"]))
    if version is None:
        return False
    return version in affected.get("versions", []) or any(
        is_within(Version(version), range_["events"])
        for range_ in affected.get("ranges", [])
        if range_.get("type", "ECOSYSTEM") == "ECOSYSTEM"
    )


def is_within(version: Version, events: list[dict[str, str]]) -> bool:
    """Return whether the last event up to a version introduced the weakness."""
    inside = False
    for event in events:
        [(kind, at)] = event.items()
        if kind == "introduced" and Version(at) <= version:
            inside = True
        elif (kind == "fixed" and Version(at) <= version) or (
            kind == "last_affected" and Version(at) < version
        ):
            inside = False
    return inside


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
