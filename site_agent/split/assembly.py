"""Joining what both services have made to one network, with a statement of how it came about."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from aggregators.formats import write_model
from aggregators.models import StateDict
from aggregators.whole_file import write_whole
from site_agent.errors import InvalidInputError
from site_agent.split.cuts import join_parts
from site_agent.split.kits import START, Kit
from site_agent.split.noise import SmashedNoise
from site_agent.split.plan import SplitPlan
from site_agent.split.private_steps import protection_words
from site_agent.split.rounds_folder import RoundsFolder


def rounds_of(kit: Kit) -> RoundsFolder:
    """Return the rounds that a service has on disk."""
    return RoundsFolder(kit.folder / RoundsFolder.FOLDER, kit.folder / START, kit.plan)


def assemble(server: Kit, aggregator: Kit, output: Path) -> dict[str, Any]:
    """Write the network of the newest round, and a statement beside it; return the statement.

    Whoever has both kits has the whole network; neither service does.
    """
    if server.plan != aggregator.plan or server.first_client != aggregator.first_client:
        raise InvalidInputError("the kits are of different trainings")
    theirs, parts = rounds_of(server), rounds_of(aggregator)
    if not theirs.closed or len(parts.closed) < len(theirs.closed):
        raise InvalidInputError(
            f"the server has ended {len(theirs.closed)} rounds, the aggregator {len(parts.closed)}"
        )
    last = theirs.closed[-1]
    client = parts.part_at(last.number + 1)
    if client.digest != last.client_digest:
        raise InvalidInputError(
            f"the aggregator's part of round {last.number} is {client.digest[:16]}..., the server "
            f"knows {last.client_digest[:16]}..."
        )
    network: StateDict = join_parts(client.network, theirs.model.network)
    digest = write_model(network, output, format_name="safetensors")
    statement = {
        "network": digest,
        "plan": server.plan.model_dump(mode="json"),
        "plan_digest": server.plan.digest,
        "first_parts": {"client": server.first_client, "server": server.first_server},
        "rounds": [asdict(record) for record in theirs.closed],
        "privacy": privacy_statement(server),
    }
    text = json.dumps(statement, indent=1, sort_keys=True) + "\n"
    write_whole(output.with_name(f"{output.name}.split.json"), text)
    return statement


def releases_of(plan: SplitPlan) -> int:
    """Return how often the smashed data of an image are sent at least."""
    return 1 if plan.trains_server_alone else plan.rounds * plan.training.epochs


def privacy_statement(kit: Kit) -> str:
    """Say in words what left the sites, and what protects it."""
    plan = kit.plan
    seen = "the smashed data of every image"
    beside = (
        "; labels and head angles stay at the sites, though gradients show the residuals"
        if plan.found_cut.tail
        else ", with its label and head angles"
    )
    return (
        f"Images stay at the sites. The main server gets {seen}{beside}. Images can be "
        "guessed from smashed data ('poolctl split attack'). The aggregator gets the client "
        f"parts of at least 3 sites a round. Training: {protection_words(plan)}. Smashed data: "
        f"{SmashedNoise(plan.noise, plan.noise_level).words(releases_of(plan))}."
    )
