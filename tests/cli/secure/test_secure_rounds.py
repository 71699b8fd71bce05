"""Rounds with contributions summed by servers: ``rounds start --secure`` to the result."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aggregators.formats import file_digest, read_model, write_model
from aggregators.models import StateDict
from pool_server.merges import running
from site_agent.datasets.gaze.generic_layout import write_samples
from tests.cli.conftest import Outcome, Run
from tests.cli.secure.parties import LABS, agree, serve
from tests.pool_server.pool_driver import PoolDriver, pool_in_thread
from tests.site_agent.federated.small_sites import samples_at

pytestmark = pytest.mark.usefixtures("small_lenet")


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[PoolDriver]:
    with pool_in_thread(tmp_path / "pool", part_bytes=1 << 20) as running:
        yield running


@dataclass
class Institutions:
    """Labs and servers, each with a home of its own, that use the commands."""

    pool: PoolDriver
    folder: Path
    poolctl: Run
    monkeypatch: pytest.MonkeyPatch
    charter: str = ""

    def be(self, name: str, *arguments: object) -> Outcome:
        """Run a command at one institution."""
        self.monkeypatch.setenv("POOL_ENDPOINT", self.pool.url)
        self.monkeypatch.setenv("POOL_TOKEN", self.pool.secret(name, "contributor"))
        self.monkeypatch.setenv("POOL_HOME", str(self.folder / name))
        return self.poolctl(*arguments)

    def place_of(self, name: str) -> Path:
        return self.folder / name / "secure"

    def serve(self) -> None:
        """Let the servers do all pending work, as `secure serve` does."""
        serve(self.pool, self.charter, self.place_of)


@pytest.fixture
def institutions(
    pool: PoolDriver, tmp_path: Path, poolctl: Run, monkeypatch: pytest.MonkeyPatch
) -> Institutions:
    return Institutions(pool, tmp_path, poolctl, monkeypatch)


def start_rounds(institutions: Institutions, base: Path, *method: object) -> str:
    """Draw eyes for each lab, upload a new network, and start secure rounds from it."""
    be, charter = institutions.be, institutions.folder / "charter.toml"
    institutions.charter = agree(
        institutions.pool, institutions.poolctl, charter, institutions.place_of
    )
    for number, name in enumerate(LABS):
        write_samples(eyes_of(institutions, name), [samples_at(number, 16 + 2 * number)])
        assert be(name, "rounds", "trust", LABS[0]).code == 0
    assert be(LABS[0], "federated", "init", "-o", base).code == 0
    assert be(LABS[0], "upload", base, "--name", base.stem).code == 0
    arguments = ["--sites", ",".join(LABS), "--deadline", "1h", "--option", "epochs=1"]
    arguments += ["--option", "batch_size=8", "--secure", str(charter)]
    started = be(
        LABS[0], "rounds", "start", "--base", f"{LABS[0]}/{base.stem}", *arguments, *method, "-q"
    )
    assert started.code == 0, started.err
    return started.out.strip()


def eyes_of(institutions: Institutions, name: str) -> Path:
    return institutions.folder / f"eyes-{name}"


def visit(institutions: Institutions, key: str) -> list[dict[str, object]]:
    """Let the servers act, the labs contribute, and the servers act again."""
    institutions.serve()
    arguments = ("rounds", "contribute", key, "--data")
    outcomes = [institutions.be(x, *arguments, eyes_of(institutions, x), "--json") for x in LABS]
    institutions.serve()
    return [outcome.data for outcome in outcomes]


def kept_files(institutions: Institutions, key: str, suffix: str) -> list[Path]:
    """Return the files that the labs computed for a round, or summed."""
    return sorted(institutions.folder.glob(f"lab-*/cache/rounds/*/{key}/*.{suffix}"))


def test_a_pool_that_takes_the_secure_sum_away_gets_nothing(
    institutions: Institutions, tmp_path: Path
) -> None:
    be = institutions.be
    key = start_rounds(institutions, tmp_path / "downgraded.safetensors", "--method", "fedavg")
    contributing = ("rounds", "contribute", key, "--data", eyes_of(institutions, LABS[0]), "--json")
    assert be(LABS[0], *contributing, "--dry-run").code == 0
    database = institutions.pool.settings.database_file
    with closing(sqlite3.connect(database)) as records, records:
        changed = records.execute("UPDATE rounds SET secure = NULL WHERE key = ?", (key,))
        assert changed.rowcount == 1
    be(LABS[0], *contributing).fails(7, "secure was {", "and is null now")
    # Labs that never saw the secure round.
    other = (*contributing[:3], "--data", eyes_of(institutions, LABS[1]), "--json")
    be(LABS[1], *other).fails(7, f"not as {LABS[0]} signed it: secure was {{")
    with closing(sqlite3.connect(database)) as records, records:
        records.execute("UPDATE rounds SET terms = NULL WHERE key = ?", (key,))
    be(LABS[1], *other).fails(5, "its terms are not signed: lab-a has a key")
    assert be(LABS[0], *contributing).code in (5, 7)
    assert be(LABS[1], *other, "--set=secure_only=true").code != 0


def test_a_lab_sums_no_update_that_differs_by_its_absence_from_a_plain_round(
    institutions: Institutions, tmp_path: Path
) -> None:
    """One number of the plain round's base is one unit in the last place higher."""
    be, base = institutions.be, tmp_path / "summed.safetensors"
    key = start_rounds(institutions, base, "--method", "fedavg")
    network, nudged = read_model(base), tmp_path / "nudged.safetensors"
    assert isinstance(network, StateDict)
    bias = network.tensors["fc2.bias"].copy()
    bias[0] = np.nextafter(bias[0], np.float32(np.inf))
    tensors = {**network.tensors, "fc2.bias": bias}
    write_model(StateDict(tensors, network.infos, network.metadata), nudged)
    assert file_digest(nudged) != file_digest(base)
    assert be(LABS[0], "upload", nudged, "--name", "nudged").code == 0
    arguments = ("--sites", ",".join(LABS[:2]), "--deadline", "1h", "--method", "fedavg")
    arguments += ("--option", "epochs=1", "--option", "batch_size=8", "--protection", "open")
    plain = be(LABS[0], "rounds", "start", "--base", f"{LABS[0]}/nudged", *arguments, "-q")
    for name in LABS[:2]:
        arguments = ("--data", eyes_of(institutions, name), "--least-others", 1)
        sent = be(name, "rounds", "contribute", plain.out.strip(), *arguments)
        assert sent.code == 0, sent.err
    for name in LABS:
        sent = be(
            name, "rounds", "contribute", key, "--data", eyes_of(institutions, name), "--json"
        )
        if name == LABS[2]:  # in one of the two alone
            assert sent.code == 0, sent.err
        else:
            assert sent.code == 3
            assert "with other sites (lab-a, lab-b)" in sent.error["message"]


def test_a_pool_that_publishes_another_result_is_caught(
    institutions: Institutions, tmp_path: Path
) -> None:
    """The pool signs any digest; a lab combines base and verified sum itself."""
    be = institutions.be
    key = start_rounds(
        institutions, tmp_path / "swapped.safetensors", "--method", "fedavgm", "--rounds", 2
    )
    while {visit_["phase"] for visit_ in visit(institutions, key)} != {"complete"}:
        pass
    # The server's own part of the merge answers with a network of its own making.
    original = running.MergeRun.merge

    def swap(run: Any, recipe: Any, paths: Any, output: Path, output_format: str) -> Any:
        made = original(run, recipe, paths, output, output_format)
        crafted = read_model(output)
        assert isinstance(crafted, StateDict)
        tensors = {name: np.array(tensor) for name, tensor in crafted.tensors.items()}
        tensors["fc1.weight"][:] = tensors["fc1.weight"][0]
        write_model(StateDict(tensors, crafted.infos, crafted.metadata), output,
                    format_name="safetensors")  # fmt: skip
        digest = file_digest(output)
        recipe_output = made["recipe"]["output"] | {"digest": digest}
        return made | {"digest": digest, "recipe": made["recipe"] | {"output": recipe_output}}

    institutions.monkeypatch.setattr(running.MergeRun, "merge", swap)
    be(LABS[1], "rounds", "finish", key, "--json").fails(3, "the sum that lab-b verified make")
    following = be(LABS[0], "rounds", "ls", key, "--json").data["successor"]
    arguments = ("rounds", "contribute", following, "--data")
    for lab in LABS:
        be(lab, *arguments, eyes_of(institutions, lab), "--json").fails(
            3, f"the pool's result of secure round {key} is sha256"
        )
    assert not kept_files(institutions, following, "contribution"), "nobody trained on it"
