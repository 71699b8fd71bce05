"""``poolctl federated provision|serve|site``: the processes of live rounds."""

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from aggregators.formats import file_digest, fingerprint, read_model
from aggregators.methods.round_options import describe_protection, protect
from cli.frame.errors import InputMissingError
from cli.frame.options import Argument, DespiteFindingsOption, DryRunOption, Option, command, single
from cli.frame.output import Invocation, Reply
from cli.frame.values import site_names
from cli.live import terminated_as_interrupted
from cli.options.data import (
    CohortOption,
    LeastOthersOption,
    MaxHoursOption,
    MostEpsilonOption,
    ProtectionOption,
    RoundCountOption,
    part_words,
)
from cli.options.merging import MethodOption, method_options
from site_agent.datasets.network_data import digest_data, open_network_data
from site_agent.datasets.soundness import require_sound
from site_agent.errors import BusyError, InvalidInputError
from site_agent.federated.live.kits import SERVER
from site_agent.federated.live.kits import provision as make_kits
from site_agent.federated.live.rounds_folder import RoundReport, RoundsFolder
from site_agent.federated.live.site_rules import SiteRules
from site_agent.federated.plan import make_plan
from site_agent.live.kits import open_kit
from site_agent.pool.profiles import host_of, rounds_folder
from site_agent.pool.trust import trusted_sites
from site_agent.rounds.contract import ContributionRules
from site_agent.rounds.provenance import find_base_problems
from site_agent.tasks.model_files import is_address
from site_agent.wording import count_words
from site_agent.work.locks import locked

app = single()

KitArgument = Annotated[Path, Argument("The folder that 'provision' made for it.", "KIT")]


@command(
    app,
    "provision",
    "federated provision --server rounds.example.org:8790 --sites site-a,site-b -o kits",
    "federated provision --server rounds.example.org:8790 --sites site-c -o kits",
)
def provision(
    _invocation: Invocation,
    *,
    server: Annotated[str, Option("Where all sites reach the server.", "HOST:PORT")],
    sites: Annotated[Sequence[str], Option("The sites that take part.", "A,B,C")],
    output: Annotated[Path, Option("Where to write the kits.", "FOLDER")],
) -> Reply:
    """Make the kits of a federation: certificates and addresses of each process.

    Give each site the folder of its name, and the machine at HOST the folder 'server' (it runs
    'federated serve'). Keep 'authority' to yourself: with it, further sites can be added by the
    same command, and the server gets its folder again. The certificates last 360 days.
    """
    made = make_kits(output, address=server, sites=site_names(sites))
    text = [str(kit) for kit in made] or [f"{output} has these kits already"]
    if made:
        text.append(
            f"give each of them its folder, and the server {output / 'server'} again, which names "
            f"all sites; keep {output / 'authority'} to yourself"
        )
    return Reply({"output": output, "server": server, "made": made}, text, [str(k) for k in made])


@command(
    app,
    "site",
    "federated site kits/site-a --data eyes/ --base site-b/gaze@1 --accept 4f1d2c...",
    "federated site kits/site-a --data eyes/ --base base.safetensors --accept 4f1d2c... "
    "--persons p00,p03,p07",
)
def site(
    invocation: Invocation,
    kit: KitArgument,
    *,
    data: Annotated[Path, Option("The site's gaze data. They stay on this machine.", "FOLDER")],
    base: Annotated[
        Sequence[str],
        Option(
            "A network with which rounds may begin, or its SHA-256 (repeatable). One in "
            "the pool has to be new, or made of models of your own and of sites that you trust "
            "('poolctl rounds trust').",
            "FILE|ADDRESS",
        ),
    ],
    accept: Annotated[
        Sequence[str],
        Option(
            "SHA-256 of a plan by which rounds may be held, as 'federated serve --dry-run' shows "
            "it (repeatable).",
            "SHA256",
        ),
    ],
    persons: Annotated[str, Option("Only these persons. Default: all.", "A,B,...")] = "",
    least_others: LeastOthersOption = 2,
    max_hours: MaxHoursOption = 4.0,
    despite_findings: DespiteFindingsOption = False,
    most_epsilon: MostEpsilonOption = None,
) -> Reply:
    """Take part in rounds of a federation until Ctrl-C.

    The site trains the networks that it gets on its own data, and sends the changes of the
    parameters and the number of samples. A network built for the purpose could make these show
    your data, so rounds must begin with one that you name, and keep to a plan that you name; of
    the later networks you believe the server, as far as the updates of all sites can have moved
    them. No code travels. After an interruption, run the same command again: the site takes part
    again at once.
    """
    from site_agent.federated.live.site import LiveSite

    folder = open_kit(kit, "site")
    if not data.exists():
        raise InputMissingError(f"{data}: no such folder")
    names = part_words(persons)
    opened = open_network_data(data)
    require_sound(opened, persons=names, despite_findings=despite_findings)
    count = len(digest_data(opened, names))
    rules = SiteRules(
        data.resolve(),
        names,
        dict(_find_base(invocation, word) for word in base),
        tuple(digest.removeprefix("sha256:") for digest in accept),
        rounds_folder().resolve(),
        folder.addresses[SERVER],
        least_others,
        max_hours,
        most_epsilon,
    )
    invocation.note(f"{folder.name}: {count_words(count, 'person')}; stop with Ctrl-C")
    with (
        suppress(KeyboardInterrupt),
        terminated_as_interrupted(),
        LiveSite(folder, rules, note=invocation.note) as running,
    ):
        running.run()
    return Reply({"kit": folder.folder, "role": folder.role}, "stopped", [])


def _find_base(invocation: Invocation, named: str) -> tuple[str, Path | None]:
    """Return the SHA-256 of a network with which rounds may begin, and its file if it is here."""
    if re.fullmatch("(sha256:)?[0-9a-f]{64}", named):
        return named.removeprefix("sha256:"), None
    if not is_address(named):
        path = invocation.model_file(named).path.resolve()
        return file_digest(path), path
    with invocation.pool() as pool:
        rules = ContributionRules(trusted=trusted_sites(host_of(pool.endpoint)))
        version = pool.version(named)
        problems, hint = find_base_problems(pool, version, rules.including(pool.whoami().site))
        file = None if problems else pool.fetch(version, may_be_unsigned=True).path.resolve()
    if problems:
        raise InvalidInputError(
            "\n  ".join([f"the network {named} cannot be accounted for:", *problems]),
            hint=f"{hint}if you know how it was made, name its digest: --base {version.digest}",
        )
    return version.digest, file


@command(
    app,
    "serve",
    "federated serve kits/server --base base.safetensors --method fedadam --rounds 10 -o run",
    "federated serve kits/server --base site-a/gaze --method fedavg --rounds 20 -o run "
    "--option epochs=2 --option learning_rate=0.05",
)
def serve(
    invocation: Invocation,
    kit: KitArgument,
    *,
    base: Annotated[str, Option("The network to begin with.", "FILE|ADDRESS")],
    output: Annotated[Path, Option("Where the networks go.", "FOLDER")],
    method: Annotated[str, Option("How updates are combined, such as fedadam.", "NAME")] = "fedavg",
    rounds: RoundCountOption = 10,
    option: MethodOption = (),
    cohort: CohortOption = 1.0,
    seed: Annotated[int, Option("Seed of training and of cohorts.", min=0)] = 0,
    round_limit_s: Annotated[
        float, Option("How long a site may train in a round, in seconds.", min=1)
    ] = 600.0,
    protection: ProtectionOption = None,
    dry_run: DryRunOption = False,
) -> Reply:
    """Hold rounds with the sites of a federation that are connected, as their server.

    Each round's network is written to FOLDER with its recipe; so is the state of a server
    optimiser. Contributions are deleted with the end of their round. Options are those of the
    method and of the sites' training (epochs, batch_size, learning_rate, ...). Sites train by a
    plan alone that they have named by the digest which --dry-run shows. After an interruption, run
    the same command again to continue. 'poolctl upload' publishes a network with its recipe.
    """
    from site_agent.federated.live.server import RoundsServer, serving

    opened = open_kit(kit, SERVER)
    options = {"seed": seed, **method_options(option)}
    network = invocation.model_file(base).path
    options = protect(
        method, options, protection, secure=False, base=fingerprint(read_model(network))
    )
    plan = make_plan(method, options, rounds=rounds, cohort=cohort)
    naming = f"each site names it: poolctl federated site KIT --accept {plan.digest}"
    if dry_run:
        facts = {"plan": plan.model_dump(mode="json"), "plan_digest": plan.digest}
        told = describe_protection(plan.training, secure=False)
        return Reply(facts, [f"would hold {rounds} rounds of {method}", told, naming])
    if not opened.sites:
        raise InvalidInputError(
            f"{kit}: names no sites, expected those of the federation",
            hint="run 'poolctl federated provision' again with all sites, and take its new kit",
        )
    invocation.note(f"{naming}\nserver at {opened.addresses[SERVER]}; stop with Ctrl-C")
    folder = RoundsFolder(output, plan, network)
    server = RoundsServer(opened, folder, round_limit_s=round_limit_s, note=invocation.note)
    busy = BusyError(f"{output} is in use by another call")
    with (
        locked(output / ".lock", busy=busy),
        terminated_as_interrupted(),
        serving(opened, server),
        invocation.progress("rounds") as progress,
    ):
        server.hold(progress=progress, on_round=lambda report: invocation.note(_words(report)))
    items = [asdict(report) | {"path": folder.network(report.number)} for report in folder.reports]
    last = folder.network(rounds)
    data = {
        "plan": plan.model_dump(mode="json"),
        "plan_digest": plan.digest,
        "rounds": items,
        "output": last,
    }
    digest = folder.reports[-1].digest
    return Reply(data, f"{last}  ({rounds} rounds, {digest[:12]}...)", [str(last)])


def _words(report: RoundReport) -> str:
    reasons = {site: f" ({report.left_out[site]})" for site in report.left_out}
    names = [f"{site}{reasons.get(site, '')}" for site in report.missing]
    missing = f", without {', '.join(names)}" if names else ""
    return (
        f"round {report.number}: {len(report.updates)} sites{missing}, {report.seconds:.1f} s, "
        f"{report.digest[:12]}..."
    )
