"""A pool and labs as people have them: processes with homes of their own, nothing shared."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Lab:
    """One lab's machine.

    Attributes
    ----------
    folder : Path
        Where its commands run; the lab's settings and cache lie in ``home`` below it.
    variables : dict
        Environment besides that of the tests, which says nothing about pools.
    """

    folder: Path
    variables: dict[str, str] = field(default_factory=dict)

    def poolctl(self, *arguments: object) -> Any:
        """Run a command that has to succeed and return its data."""
        outcome = self.attempt(*arguments)
        assert outcome["success"], outcome["error"]
        return outcome["data"]

    def log_in(self, url: str, token: str) -> None:
        self.variables["POOL_TOKEN"] = token
        self.poolctl("auth", "login", url)
        del self.variables["POOL_TOKEN"]

    def attempt(self, *arguments: object) -> dict[str, Any]:
        """Run a command and return its JSON envelope."""
        process = subprocess.Popen(
            [sys.executable, "-m", "cli", *map(str, arguments), "--json"],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        out, errors = process.communicate(timeout=1500)
        assert "Traceback" not in errors, errors
        envelope = json.loads(out)
        assert envelope["success"] is (process.returncode == 0), (out, errors)
        assert isinstance(envelope, dict)
        return envelope

    @property
    def environment(self) -> dict[str, str]:
        clean = {name: text for name, text in os.environ.items() if not name.startswith("POOL_")}
        return clean | {"POOL_HOME": str(self.folder / "home"), **self.variables}


@dataclass(frozen=True)
class PoolProcess:
    """A pool that runs as ``poolctl serve``, and its admin."""

    url: str
    admin: Lab

    def make_lab(self, folder: Path, site: str) -> Lab:
        """Create a site and log its lab in."""
        folder.mkdir()
        self.admin.poolctl("admin", "sites", "create", site)
        secret = self.admin.poolctl("admin", "people", "token", site, "workstation")["secret"]
        lab = Lab(folder)
        lab.log_in(self.url, secret)
        return lab


@contextmanager
def serving_pool(folder: Path) -> Iterator[PoolProcess]:
    """Run a pool on a free port while the block runs."""
    admin = Lab(folder)
    folder.mkdir()
    with (folder / "server.log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "cli", "serve", "--data", "data", "--port", "0", "--json"],
            cwd=folder,
            env=admin.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    assert process.stdout is not None
    try:
        answer = ""
        for line in process.stdout:
            answer += line
            if line == "}\n":
                break
        said = json.loads(answer)["data"]
        admin.log_in(said["url"], (folder / "data" / "first-token").read_text().strip())
        yield PoolProcess(said["url"], admin)
    finally:
        process.terminate()
        process.communicate(timeout=540)
