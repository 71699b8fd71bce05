"""Jobs that hold a block of rounds: configuration and a network, never code."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

from aggregators.methods.networks.state_file import state_path
from site_agent.federated.engines.flare.kit_policy import CONTROLLER, EXECUTOR
from site_agent.federated.engines.flare.messages import TRAIN
from site_agent.federated.plan import FederationPlan

_TASK_INTERVAL_S = 0.5


def write_job(
    folder: Path,
    plan: FederationPlan,
    sites: Sequence[str],
    base: Path,
    *,
    run: str,
    first_round: int,
    rounds: int,
    round_limit_s: float,
) -> None:
    """Write the job of a block of rounds as FLARE takes it.

    Parameters
    ----------
    folder : Path
        Created; its name is the job's.
    base : Path
        The network's file; a state beside it goes along. Both go to the server only.
    """
    server, site = folder / "server" / "config", folder / "site" / "config"
    server.mkdir(parents=True)
    site.mkdir(parents=True)
    for path in (base, state_path(base)):
        if path.is_file():
            shutil.copyfile(path, server / path.name)
    arguments = {
        "plan": plan.model_dump(mode="json"),
        "sites": list(sites),
        "base": base.name,
        "run": run,
        "first_round": first_round,
        "rounds": rounds,
        "round_limit_s": round_limit_s,
    }
    controller = {
        "format_version": 2,
        "server": {"task_request_interval": _TASK_INTERVAL_S},
        "workflows": [{"id": "rounds", "path": CONTROLLER, "args": arguments}],
        "components": [],
    }
    executor = {
        "format_version": 2,
        "executors": [{"tasks": [TRAIN], "executor": {"path": EXECUTOR, "args": {}}}],
        "components": [],
    }
    meta = {
        "name": folder.name,
        "resource_spec": {},
        "min_clients": 2,
        "deploy_map": {"server": ["server"], "site": list(sites)},
    }
    (server / "config_fed_server.json").write_text(json.dumps(controller), encoding="utf-8")
    (site / "config_fed_client.json").write_text(json.dumps(executor), encoding="utf-8")
    (folder / "meta.json").write_text(json.dumps(meta), encoding="utf-8")
