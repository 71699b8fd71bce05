"""Kits of a split training: certificates, addresses and the plan of each process."""

import secrets
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from aggregators.formats import write_model
from aggregators.models import StateDict
from site_agent.errors import InvalidInputError
from site_agent.federated.plan import first_model
from site_agent.live.kits import AUTHORITY, Authority, Kit, read_facts, require_names
from site_agent.secure.charter import Charter
from site_agent.split.plan import FEWEST_SITES, PERSONS_IN_ONE_PROCESS, SplitPlan, read_split_plan

if TYPE_CHECKING:
    from site_agent.split.parts import Parts

SERVER, AGGREGATOR = "server", "aggregator"
START = "start.safetensors"

_DRAWING = threading.Lock()


@dataclass(frozen=True)
class SplitKit(Kit):
    """A kit of a split training; a service's has the part with which the first round begins."""

    plan: SplitPlan
    first_client: str
    """SHA-256 of the client part with which the first round begins."""
    first_server: str
    """SHA-256 of the server part with which the first round begins."""
    round_limit_s: float
    """Time after which a round ends without the unfinished sites."""
    client_seed: int | None
    """The seed of the first client part, in the kits of sites only: a server with the part would
    guess better from smashed data. None if the part was not drawn."""
    drawn_by: str
    """The program that drew it, such as ``torch 2.9``; others may draw other numbers."""
    charter: str = ""
    """SHA-256 of the charter of the secure sums, in which all sites take part in each round: of
    client parts, or of the smashed data of variant ``mean-smashed``. Empty without them."""


def read_kit(folder: Path, *roles: str) -> SplitKit:
    """Return the kit in a folder.

    Raises `InvalidInputError`: no kit, another role, or a training that processes do not hold.
    """
    facts = read_facts(folder, *roles)
    # Kits of earlier versions name the noise; it is Laplace noise now.
    noise = facts["plan"].pop("noise", "laplace")
    if noise != "laplace":
        raise InvalidInputError(
            f"{folder}: found a kit with {noise} noise, expected laplace",
            hint="make new kits ('poolctl split provision')",
        )
    plan = read_split_plan(facts["plan"])
    _require_held_by_processes(plan)
    return SplitKit(
        folder.resolve(), facts["role"], facts["name"], facts["addresses"], tuple(facts["sites"]),
        plan, facts["first_client"], facts["first_server"], facts["round_limit_s"],
        facts.get("client_seed"), facts["drawn_by"], facts["charter"],
    )  # fmt: skip


def drawing_program() -> str:
    """Return the program that draws parts here, with its version."""
    return f"torch {version('torch')}"


def draw_client_part(plan: SplitPlan, seed: int) -> StateDict:
    """Return the first client part of a seed; equal seeds give equal bytes."""
    # torch's random numbers belong to the process: threads would draw from each other's.
    with _DRAWING:
        return _draw_parts(plan, seed).client


def _draw_parts(plan: SplitPlan, seed: int) -> "Parts":
    from site_agent.networks.modules import new_network
    from site_agent.split.parts import split_network

    network = new_network(plan.architecture, seed)
    # Parts fit each other by their metadata, which must not tell the client's seed.
    facts = {**network.metadata, "seed": str(plan.training.seed)}
    return split_network(StateDict(network.tensors, network.infos, facts), plan.found_cut)


def provision(
    output: Path,
    plan: SplitPlan,
    base: StateDict | None,
    *,
    addresses: Mapping[str, str],
    sites: Sequence[str],
    client_seed: int | None = None,
    round_limit_s: float = 600.0,
    charter: Charter | None = None,
) -> list[Path]:
    """Make the kits of a training: ``server``, ``aggregator`` and one for each site.

    The folder ``authority`` holds the key that signs certificates; nobody needs it afterwards.

    `base`: The whole network to begin with; its parts go to the two services. None draws a server
    part from the plan's seed, and a client part from `client_seed`, which sites repeat; by default
    a new one. `addresses`: HOST:PORT of ``server`` and ``aggregator``. `charter`: Of the secure
    sums; its labs are the sites.

    Raises `InvalidInputError`: too few sites, an invalid name or address, a network that does not
    fit, or `output` exists.

    Returns
    -------
    list of Path
        The kits.
    """
    from site_agent.split.parts import Parts, split_network

    names = sorted(set(sites))
    _require_possible(plan, names, addresses, charter)
    if output.exists() and any(output.iterdir()):
        raise InvalidInputError(f"{output}: is not empty, expected a new folder for the kits")
    if base is not None:
        parts, client_seed = split_network(base, plan.found_cut), None
    else:
        client_seed = secrets.randbits(63) if client_seed is None else client_seed
        server = _draw_parts(plan, plan.training.seed).server
        parts = Parts(draw_client_part(plan, client_seed), server)
    output.mkdir(parents=True, exist_ok=True)
    authority = Authority.open(output / AUTHORITY)
    facts = {
        "plan": plan.model_dump(mode="json"), "sites": names, "round_limit_s": round_limit_s,
        "drawn_by": drawing_program(), "first_server": first_model(parts.server).digest,
        "first_client": first_model(parts.client).digest,
        "charter": "" if charter is None else charter.digest,
    }  # fmt: skip
    for service, part in ((SERVER, parts.server), (AGGREGATOR, parts.client)):
        authority.make_kit(output / service, service, service, addresses, facts)
        write_model(part, output / service / START)
    for name in names:
        site_facts = {**facts, "client_seed": client_seed}
        authority.make_kit(output / name, "site", name, addresses, site_facts)
    return [output / name for name in (SERVER, AGGREGATOR, *names)]


def _require_possible(
    plan: SplitPlan, names: Sequence[str], addresses: Mapping[str, str], charter: Charter | None
) -> None:
    require_names(names, addresses)
    if len(names) < FEWEST_SITES:
        raise InvalidInputError(f"found {len(names)} sites, expected at least {FEWEST_SITES}")
    _require_held_by_processes(plan)
    if charter is None and plan.variant == "mean-smashed":
        raise InvalidInputError(
            "mean-smashed needs a secure sum, as the main server would see the smashed data before "
            "their mean",
            hint="give the charter of one ('poolctl secure charter create')",
        )
    if charter is not None and set(charter.labs) != set(names):
        raise InvalidInputError(
            f"the charter's labs are {', '.join(sorted(charter.labs))}, expected the sites "
            f"{', '.join(names)}"
        )
    if plan.is_private and plan.dp_covers == "person":
        raise InvalidInputError(PERSONS_IN_ONE_PROCESS)


def _require_held_by_processes(plan: SplitPlan) -> None:
    if plan.variant not in ("v1", "mean-smashed"):
        raise InvalidInputError(
            f"variant {plan.variant}: processes hold v1 and mean-smashed",
            hint="'poolctl split simulate' and 'study split' hold the others in one process",
        )
