"""Jobs that hold a block of rounds: configuration and a network, never code.

Possible liars: the holder of the submitter's kit, or a server in other hands. FLARE's own job
configuration can fetch addresses, read the environment and name files, so server and sites take
none but the one that `write_job` writes: before FLARE reads a job, `check_job` compares every file
of it with this module's own output.
"""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from aggregators.methods.networks.round_files import state_path
from site_agent.errors import InvalidInputError
from site_agent.federated.engines.flare.kits import CONTROLLER, EXECUTOR, SITE_NAME
from site_agent.federated.engines.flare.messages import TRAIN
from site_agent.federated.plan import FederationPlan, read_plan

Side = Literal["server", "client"]
"""FLARE's name of the machine on which a part of a job runs."""

_FILE_NAME = r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}\.safetensors"
_SIGNATURES = (".__nvfl_sig.json", ".__nvfl_submitter.crt")
"""FLARE's signature of a folder, and the signer's certificate."""

_TASK_INTERVAL_S = 0.5
_LONGEST_CONFIGURATION = 1_000_000
_LONGEST_ROUND_S = 7 * 24 * 3600.0


class BlockArguments(BaseModel):
    """A job's description of its block of rounds; the rest is the same in all jobs."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    plan: dict[str, Any]
    """The JSON values of ``FederationPlan.model_dump()``."""
    sites: tuple[Annotated[str, Field(pattern=f"^{SITE_NAME}$")], ...] = Field(max_length=1000)
    """All sites of the federation."""
    base: str = Field(pattern=f"^{_FILE_NAME}$")
    """Name of the network's file next to the configuration; a state may be stored there, too."""
    first_base: str = Field(pattern="^[0-9a-f]{64}$")
    """SHA-256 of the network with which the rounds of the plan began."""
    first_round: int = Field(ge=1, le=100_000)
    rounds: int = Field(ge=1, le=100_000)
    round_limit_s: float = Field(gt=0, le=_LONGEST_ROUND_S)

    def read_plan(self) -> FederationPlan:
        """Return the plan; raises as `read_plan`."""
        return read_plan(self.plan)


def read_arguments(content: Any) -> BlockArguments:
    """Return the arguments of a block of rounds."""
    try:
        return BlockArguments.model_validate(content)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_context=False)[0]
        name = ".".join(str(step) for step in problem["loc"])
        value = repr(problem["input"])[:80]
        raise InvalidInputError(f"job: {name}: found {value}: {problem['msg']}") from error


def write_job(
    folder: Path,
    plan: FederationPlan,
    sites: Sequence[str],
    base: Path,
    *,
    first_base: str,
    first_round: int,
    rounds: int,
    round_limit_s: float,
) -> None:
    """Write the job of a block of rounds as FLARE takes it.

    `folder`: Created; its name is the job's. `base`: The network's file; a state next to it goes
    along. Both go to the server only.
    """
    arguments = BlockArguments(
        plan=plan.model_dump(mode="json"),
        sites=tuple(sites),
        base=base.name,
        first_base=first_base,
        first_round=first_round,
        rounds=rounds,
        round_limit_s=round_limit_s,
    )
    server, site = folder / "server" / "config", folder / "site" / "config"
    server.mkdir(parents=True)
    site.mkdir(parents=True)
    for path in (base, state_path(base)):
        if path.is_file():
            shutil.copyfile(path, server / path.name)
    meta = {
        "name": folder.name,
        "resource_spec": {},
        "min_clients": 2,
        "deploy_map": {"server": ["server"], "site": list(sites)},
    }
    _write(server / _CONFIGURATION["server"], _server_configuration(arguments))
    _write(site / _CONFIGURATION["client"], _site_configuration())
    _write(folder / "meta.json", meta)


def check_job(app: Path, side: Side) -> None:
    """Refuse a part of a job that `write_job` would not have written.

    `app`: The part as it arrived, with its folder ``config``. Nothing in it has been used yet.
    """
    name = _CONFIGURATION[side]
    place = app / "config" / name
    if place.is_symlink() or not place.is_file():
        raise InvalidInputError(f"found no config/{name}; jobs are configured in JSON only")
    if place.stat().st_size > _LONGEST_CONFIGURATION:
        raise InvalidInputError(f"{name} has {place.stat().st_size} bytes, expected a million")
    try:
        content = json.loads(place.read_bytes())
        arguments_ = content["workflows"][0]["args"] if side == "server" else None
    except (ValueError, KeyError, IndexError, TypeError, RecursionError):
        raise InvalidInputError(f"{name}: not the configuration of a block of rounds") from None
    allowed, expected = {place}, _site_configuration()
    if side == "server":
        arguments = read_arguments(arguments_)
        arguments.read_plan()
        expected = _server_configuration(arguments)
        base = app / "config" / arguments.base
        allowed |= {base, state_path(base)}
    # FLARE reads the file once more: what it finds has to mean the same.
    if content != expected:
        raise InvalidInputError(f"{name}: found entries that a block of rounds does not have")
    for path in sorted(app.rglob("*")):
        plain = path.is_dir() or path in allowed or path.name in _SIGNATURES
        if path.is_symlink() or not plain:
            raise InvalidInputError(f"{path.relative_to(app)}: no part of a block of rounds")


_CONFIGURATION: dict[Side, str] = {
    "server": "config_fed_server.json",
    "client": "config_fed_client.json",
}


def _server_configuration(arguments: BlockArguments) -> dict[str, Any]:
    args = arguments.model_dump(mode="json")
    return {
        "format_version": 2,
        "server": {"task_request_interval": _TASK_INTERVAL_S},
        "workflows": [{"id": "rounds", "path": CONTROLLER, "args": args}],
        "components": [],
    }


def _site_configuration() -> dict[str, Any]:
    return {
        "format_version": 2,
        "executors": [{"tasks": [TRAIN], "executor": {"path": EXECUTOR, "args": {}}}],
        "components": [],
    }


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content), encoding="utf-8")
