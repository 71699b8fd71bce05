"""``poolctl federated submit|status|stop``: starting live rounds and seeing how far they are."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.federated.live import KitArgument
from cli.frame.addresses import model_file
from cli.frame.errors import goes_on_when_repeated
from cli.frame.options import command, single
from cli.frame.output import Invocation, Reply, TableText
from cli.options.methods import MethodOption, method_options
from cli.options.versions import model_address

if TYPE_CHECKING:
    from site_agent.federated.engines.flare.federation import FederationFolder
    from site_agent.federated.engines.flare.messages import RoundReport
    from site_agent.pool.client import PoolClient

app = single()


@command(
    app,
    "submit",
    examples=[
        "federated submit kits/submit --base base.safetensors --method fedadam --rounds 10 -o run",
        "federated submit kits/submit --base site-a/gaze --method fedavg --rounds 20 -o run "
        "--option epochs=2 --option learning_rate=0.05 --upload gaze-rounds",
    ],
)
def submit(
    invocation: Invocation,
    kit: KitArgument,
    *,
    base: Annotated[
        str,
        typer.Option(metavar="FILE|ADDRESS", help="The network to begin with.", show_default=False),
    ],
    output: Annotated[Path, typer.Option(metavar="FOLDER", help="Where the networks go.")],
    method: Annotated[
        str, typer.Option(metavar="NAME", help="How updates are combined, such as fedadam.")
    ] = "fedavg",
    rounds: Annotated[int, typer.Option(min=1, max=100_000, help="Number of rounds.")] = 10,
    option: MethodOption = (),
    cohort: Annotated[
        float, typer.Option(min=0.001, max=1.0, help="Share of the sites that train in a round.")
    ] = 1.0,
    seed: Annotated[int, typer.Option(min=0, help="Seed of training and of cohorts.")] = 0,
    block_rounds: Annotated[
        int,
        typer.Option(min=1, max=100, help="A site that comes back waits for at most so many."),
    ] = 5,
    round_limit_s: Annotated[
        float, typer.Option(min=1, help="How long a site may train in a round, in seconds.")
    ] = 600.0,
    upload: Annotated[
        str | None,
        typer.Option(metavar="[SITE/]NAME", help="Upload each round's network as a version."),
    ] = None,
) -> Reply:
    """Hold rounds with the sites of a federation that are connected.

    Each round's network is written to FOLDER with its recipe; so is the state of a server
    optimiser. Options are those of the method and of the sites' training (epochs, batch_size,
    learning_rate, ...). When the command is interrupted, the block of rounds under way goes on; run
    the same command again to continue, or 'stop' to end the rounds.
    """
    from site_agent.federated.engines.flare.federation import (
        FederationFolder,
        hold_rounds,
    )
    from site_agent.federated.engines.flare.kits import read_kit
    from site_agent.federated.plan import make_plan

    found = read_kit(kit, "submitter")
    options = {"seed": seed, **method_options(option)}
    plan = make_plan(method, options, rounds=rounds, cohort=cohort)
    network = model_file(invocation, base).path
    federation = FederationFolder(output, plan, network)
    addresses: dict[int, str] = {}
    with ExitStack() as open_things:
        pool = None if upload is None else open_things.enter_context(invocation.pool())
        name = "" if pool is None or upload is None else model_address(pool, upload)

        def tell(report: RoundReport) -> None:
            invocation.note(_words(report))
            if pool is not None:
                addresses[report.number] = _publish(pool, name, federation, report)

        open_things.enter_context(goes_on_when_repeated())
        progress = open_things.enter_context(invocation.progress("rounds"))
        hold_rounds(
            found,
            federation,
            block_rounds=block_rounds,
            round_limit_s=round_limit_s,
            on_round=tell,
            progress=progress,
        )
    reports = federation.reports
    items = [_facts(federation, report, addresses) for report in reports]
    last = federation.network(reports[-1].number)
    data = {"plan": plan.model_dump(mode="json"), "rounds": items, "output": last}
    return Reply(data, f"{last}  ({rounds} rounds, {reports[-1].digest[:12]}...)", [str(last)])


@command(app, "status", examples=["federated status kits/submit"])
def status(_invocation: Invocation, kit: KitArgument) -> Reply:
    """Show which sites are connected, and how far the rounds are."""
    from site_agent.errors import FederationError
    from site_agent.federated.engines.flare.federation import FederationSession
    from site_agent.federated.engines.flare.kits import read_kit

    found = read_kit(kit, "submitter")
    last: dict[str, int | None] = {}
    with FederationSession(found) as session:
        connected = session.connected_sites()
        for job in session.unfinished_jobs():
            last[job] = None
            with suppress(FederationError):  # it does not run yet
                last[job] = max((each.number for each in session.rounds_done(job)), default=None)
    jobs = [{"job": job, "last_round": number} for job, number in last.items()]
    sites = [{"site": site, "connected": site in connected} for site in found.sites]
    rows = [[site, "yes" if site in connected else "no"] for site in found.sites]
    done = [[job, str(number or "")] for job, number in last.items()]
    tables = [
        TableText(["site", "connected"], rows),
        TableText(["job", "last round"], done, empty="no rounds under way"),
    ]
    return Reply({"server": found.address, "sites": sites, "jobs": jobs}, tables, sorted(connected))


@command(app, "stop", examples=["federated stop kits/submit"])
def stop(_invocation: Invocation, kit: KitArgument) -> Reply:
    """End the rounds under way; server and sites stay ready for others.

    The same 'submit' goes on with them later.
    """
    from site_agent.federated.engines.flare.federation import FederationSession
    from site_agent.federated.engines.flare.kits import read_kit

    with FederationSession(read_kit(kit, "submitter")) as session:
        jobs = list(session.unfinished_jobs())
        for job in jobs:
            session.abort(job)
    text = f"stopped {', '.join(jobs)}" if jobs else "no rounds under way"
    return Reply({"stopped": jobs}, text, jobs)


def _publish(pool: PoolClient, name: str, federation: FederationFolder, report: RoundReport) -> str:
    """Upload a round's network with its recipe, and return its address."""
    import json

    from aggregators.methods import read_recipe, recipe_path

    network = federation.network(report.number)
    plan = federation.plan
    done = pool.upload(
        network,
        name,
        description=f"Round {report.number} of {plan.rounds} by {plan.method}, "
        f"{len(report.updates)} sites.",
        recipe=json.loads(read_recipe(recipe_path(network)).to_json()),
        digest=report.digest,
    )
    return str(done.version.address)


def _words(report: RoundReport) -> str:
    reasons = {site: f" ({report.left_out[site]})" for site in report.left_out}
    names = [f"{site}{reasons.get(site, '')}" for site in report.missing]
    missing = f", without {', '.join(names)}" if names else ""
    return (
        f"round {report.number}: {len(report.updates)} sites{missing}, {report.seconds:.1f} s, "
        f"{report.digest[:12]}..."
    )


def _facts(
    federation: FederationFolder, report: RoundReport, addresses: dict[int, str]
) -> dict[str, Any]:
    place = {"path": federation.network(report.number), "address": addresses.get(report.number)}
    return asdict(report) | place
