"""A secure sum on one machine: a pool, servers and labs, each a process of its own.

Nothing is shared between them but the pool.

A lab is ``python -m tests.benchmarks.secure_trial FILE``, with its task in the file. It draws a
vector, takes part in the session, verifies the result and writes its findings next to the file.
"""

import hashlib
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from aggregators.methods.networks.round_files import read_network_contribution
from aggregators.models import Float32
from aggregators.secure_sum.layout import BitBudget, SumEntry, SumLayout, encode
from aggregators.secure_sum.sharing import UInt64, from_signed, to_bytes, to_signed
from site_agent.errors import SecureSumError
from site_agent.plain_json import write_json
from site_agent.pool.client import PoolClient
from site_agent.pool.signing import create_key
from site_agent.secure.charter import Charter, accept_charter, create_charter
from site_agent.secure.lab import Lab
from site_agent.secure.party import Board
from site_agent.secure.session import new_descriptor
from site_agent.secure.verification import Mode
from site_agent.work.processes import end_with_parent, start, stop


@dataclass(frozen=True)
class TrialSettings:
    """The size of a trial: vectors of `parameters` numbers, one of each site's lab."""

    servers: int = 3
    sites: int = 5
    parameters: int = 1_000_000
    full: bool = False
    """The labs add up all openings themselves, instead of trusting the servers' signatures."""
    poll_seconds: float = 0.25
    timeout_seconds: float = 600.0


@dataclass(frozen=True)
class TrialResult:
    """The outcome of a trial."""

    processes: int
    """The pool, the servers and the labs."""
    lab_seconds: Mapping[str, float]
    """From a lab's first request to its end."""
    seconds: float
    integer_sum_is_exact: bool
    """The sum that the labs verified is that of their encoded vectors."""
    largest_difference: float
    """Of the mean from the one computed in float64."""
    same_bytes: bool
    """All labs have the same file."""


def run_trial(
    folder: Path,
    endpoint: str,
    admin_token: str,
    settings: TrialSettings,
    *,
    server_command: Sequence[str],
    endpoint_of: Callable[[str], str] | None = None,
) -> TrialResult:
    """Hold one session with servers and labs as processes, and check its result.

    `folder`: Empty; each party gets a folder in it. `endpoint`, `admin_token`: Of a running pool
    that is used for nothing else. `server_command`: Starts ``poolctl secure serve``. `endpoint_of`:
    Takes the name of a party; returns the address at which it reaches the pool.
    """
    servers = [f"server-{number}" for number in range(1, settings.servers + 1)]
    labs = [f"lab-{number}" for number in range(1, settings.sites + 1)]
    charter = _make_charter(folder, servers, labs)
    tokens = _create_tokens(endpoint, admin_token, servers + labs)
    with PoolClient(endpoint, tokens[labs[0]]) as pool:
        layout = trial_layout(settings.parameters)
        descriptor = new_descriptor(charter, layout, time.time(), purpose="a trial")
        session = Board(pool.secure, charter=charter).open_session(descriptor.to_bytes())
    commands = {
        name: [*server_command, charter.digest, "--site", name, "--folder", str(folder / name)]
        for name in servers
    }
    for number, name in enumerate(labs):
        task = [name, number, charter.digest, session, asdict(settings)]
        path = folder / name / "trial.json"
        write_json(path, task)
        commands[name] = [sys.executable, "-m", "tests.benchmarks.secure_trial", str(path)]
    started_s = time.monotonic()
    deadline_s = started_s + settings.timeout_seconds
    with ExitStack() as stack:
        parties = {}
        for name, command in commands.items():
            variables = {
                "POOL_ENDPOINT": endpoint if endpoint_of is None else endpoint_of(name),
                "POOL_TOKEN": tokens[name],
                "POOL_HOME": str(folder / name / "home"),
            }
            log = stack.enter_context((folder / name / "log").open("wb"))
            parties[name] = start(command, stdout=log, stderr=log, environment=variables)
            stack.callback(stop, parties[name])
        while any(parties[name].poll() is None for name in labs):
            assert time.monotonic() < deadline_s, "labs are still at work"
            for name, party in parties.items():
                text = (folder / name / "log").read_text(encoding="utf-8")
                assert party.poll() in {None, 0 if name in labs else None}, f"{name} ended: {text}"
            time.sleep(0.1)
        assert not any(parties[name].poll() for name in labs), "a lab failed; see its log"
    seconds = time.monotonic() - started_s
    results = {name: json.loads((folder / name / "found.json").read_text()) for name in labs}
    return TrialResult(
        processes=1 + len(parties),
        lab_seconds={name: results[name]["seconds"] for name in labs},
        seconds=seconds,
        **_compare_sums(folder, labs, results, settings.parameters, charter),
    )


def _make_charter(folder: Path, servers: Sequence[str], labs: Sequence[str]) -> Charter:
    """Make the keys of all parties, and have each accept the charter."""
    keys = {name: create_key(folder / name, name).key.public.text for name in [*servers, *labs]}
    charter = create_charter(
        "trial", {name: keys[name] for name in servers}, {name: keys[name] for name in labs}
    )
    for name in keys:
        accept_charter(folder / name, charter, charter.digest)
    return charter


def _create_tokens(endpoint: str, admin_token: str, names: Sequence[str]) -> dict[str, str]:
    with PoolClient(endpoint, admin_token) as admin:
        for name in names:
            admin.sites.create(name)
        return {name: admin.tokens.create(name, "trial").secret for name in names}


def _compare_sums(
    folder: Path,
    labs: Sequence[str],
    results: dict[str, dict[str, Any]],
    parameters: int,
    charter: Charter,
) -> dict[str, Any]:
    """Compare the labs' results with sums computed here from all vectors."""
    total = np.zeros(parameters + 1, dtype=np.int64)
    weighted, weights = np.zeros(parameters), 0
    for number in range(len(labs)):
        total += to_signed(encoded_vector(number, parameters, charter.budget))
        values, weight = trial_vector(number, parameters)
        weighted += weight * values.astype(np.float64)
        weights += weight
    expected = hashlib.sha256(to_bytes(from_signed(total))).hexdigest()
    contribution = read_network_contribution(folder / labs[0] / "sum.contribution")
    mean = contribution.network.tensors["vector"].astype(np.float64)
    files = {
        hashlib.sha256((folder / name / "sum.contribution").read_bytes()).hexdigest()
        for name in labs
    }
    return {
        "integer_sum_is_exact": all(
            (item["sum_digest"], item["weight"], sorted(item["labs"]))
            == (expected, weights, sorted(labs))
            for item in results.values()
        ),
        "largest_difference": float(np.abs(mean - weighted / weights).max()),
        "same_bytes": len(files) == 1,
    }


BASE_DIGEST = "0" * 64
_SPREAD = 0.01
_MOST_WEIGHT = 1000


def trial_layout(parameters: int) -> SumLayout:
    """Return the layout of one vector of float32."""
    entry = SumEntry(name="vector", dtype="F32", shape=(parameters,))
    return SumLayout(kind="network", base_digest=BASE_DIGEST, entries=(entry,))


def trial_vector(number: int, parameters: int) -> tuple[Float32, int]:
    """Return the vector of a lab, shape (parameters,), and its weight."""
    drawn = np.random.default_rng([2026, number])
    values = drawn.normal(0.0, _SPREAD, parameters).astype(np.float32)
    return values, int(drawn.integers(1, _MOST_WEIGHT))


def encoded_vector(number: int, parameters: int, budget: BitBudget) -> UInt64:
    """Return the vector of a lab as it is summed."""
    values, weight = trial_vector(number, parameters)
    return encode(values[np.newaxis].astype(np.float64), np.array([weight]), budget)


def run(path: Path) -> None:
    """Take part in the session that a file describes."""
    name, number, charter, session, contribution = json.loads(path.read_bytes())
    settings, folder = TrialSettings(**contribution), path.parent
    with PoolClient() as pool:
        lab = Lab(folder, name, charter, Board(pool.secure))
        numbers = encoded_vector(number, settings.parameters, lab.charter.budget)
        layout = trial_layout(settings.parameters)
        lab.approve_base(layout.base_digest)
        started_s = time.monotonic()
        while not lab.share(session, layout, numbers):
            time.sleep(settings.poll_seconds)
        last_phase = "opening" if settings.full else "result"
        while not lab.visit(session).has(last_phase):
            if lab.review(session).voids:
                raise SecureSumError(lab.review(session).faults)
            time.sleep(settings.poll_seconds)
        mode: Mode = "full" if settings.full else "servers"
        written = lab.finish(session, folder / "sum.contribution", mode)
    result = {
        "name": name,
        "sum_digest": written.sum_digest,
        "file_digest": written.file_digest,
        "weight": written.weight,
        "labs": written.labs,
        "seconds": time.monotonic() - started_s,
    }
    write_json(folder / "found.json", result)


if __name__ == "__main__":
    end_with_parent()
    run(Path(sys.argv[1]))
