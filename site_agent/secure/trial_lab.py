"""One lab of ``poolctl secure try``, as a process: ``python -m site_agent.secure.trial_lab FILE``.

The file is JSON of `TrialLab`. The lab draws a vector, takes part in the session, verifies the
result and writes what it found beside the file. It can be killed and started again.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np
from pydantic import BaseModel

from aggregators.models import Float32
from aggregators.secure_sum.layout import BitBudget, SumEntry, SumLayout, encode
from aggregators.secure_sum.sharing import UInt64
from aggregators.whole_file import write_whole
from site_agent.errors import SecureSumError
from site_agent.pool.client import PoolClient
from site_agent.secure.lab import Lab
from site_agent.secure.pool_board import PoolBoard
from site_agent.secure.verification import Mode

BASE_DIGEST = "0" * 64
_SPREAD = 0.01
_MOST_WEIGHT = 1000


class TrialLab(BaseModel):
    """What a lab of a trial needs to know."""

    name: str
    number: int
    parameters: int
    charter: str
    session: str
    full: bool
    poll_seconds: float


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
    chosen = TrialLab.model_validate_json(path.read_bytes())
    folder = path.parent
    with PoolClient() as pool:
        lab = Lab(folder, chosen.name, chosen.charter, PoolBoard(pool.secure))
        numbers = encoded_vector(chosen.number, chosen.parameters, lab.charter.budget)
        layout = trial_layout(chosen.parameters)
        lab.approve_base(layout.base_digest)
        started_s = time.monotonic()
        while not lab.share(chosen.session, layout, numbers):
            time.sleep(chosen.poll_seconds)
        wanted = "opening" if chosen.full else "result"
        while not lab.visit(chosen.session).has(wanted):
            if lab.review(chosen.session).voids:
                raise SecureSumError(lab.review(chosen.session).faults)
            time.sleep(chosen.poll_seconds)
        mode: Mode = "full" if chosen.full else "servers"
        written = lab.finish(chosen.session, folder / "sum.contribution", mode)
    found = {
        "name": chosen.name,
        "sum_digest": written.sum_digest,
        "file_digest": written.file_digest,
        "weight": written.weight,
        "labs": written.labs,
        "seconds": time.monotonic() - started_s,
    }
    write_whole(folder / "found.json", json.dumps(found))


if __name__ == "__main__":
    run(Path(sys.argv[1]))
