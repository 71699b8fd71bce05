"""``poolctl split provision|client|...``: the sites of a split training."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np

from aggregators.formats import write_model
from cli.frame.errors import InputMissingError, UsageError
from cli.frame.existing_files import require_free
from cli.frame.options import Argument, DespiteFindingsOption, ForceOption, Option, command, single
from cli.frame.output import Invocation, Reply, TableText
from cli.frame.settings_options import CommandSettings, SettingsOptions
from cli.frame.values import site_names
from cli.live import KitArgument, terminated_as_interrupted
from cli.options.data import part_words
from site_agent.datasets.gaze.check import open_gaze
from site_agent.datasets.gaze.records import GazeSamples, angular_errors_deg
from site_agent.datasets.soundness import require_sound
from site_agent.federated.scores import PersonScores
from site_agent.networks.files import read_network
from site_agent.networks.views import EYE
from site_agent.pool.profiles import secure_folder
from site_agent.secure.charter import read_charter, require_accepted
from site_agent.secure.lab import Lab
from site_agent.secure.party import Board
from site_agent.split.kits import provision as make_kits
from site_agent.split.kits import read_kit
from site_agent.split.plan import SplitPlan
from site_agent.training.overlap import gaze_overlap
from site_agent.training_record import remember_learned
from site_agent.wording import size_words

app = single()

GazeDataOption = Annotated[
    Path, Option("The site's gaze data. They stay on this machine.", "FOLDER")
]
PersonsOption = Annotated[str, Option("Only these persons. Default: all.", "A,B,...")]
PLAN_SETTINGS = CommandSettings(
    SplitPlan(), ("training.dp_rounds", "training.dp_unit", "training.dp_layers")
)
"""The settings of a training; a plan decides the others itself."""

BaseOption = Annotated[Path | None, Option("Begin with this network, not with a new one.")]


@command(
    app,
    "provision",
    "split provision --server split.example.org:8791 --aggregator parts.example.net:8792 "
    "--sites site-a,site-b,site-c -o kits",
)
def provision(
    _invocation: Invocation,
    *,
    server: Annotated[str, Option("Where all sites reach the main server.", "HOST:PORT")],
    aggregator: Annotated[
        str, Option("Where all reach the part aggregator, at another institution.", "HOST:PORT")
    ],
    sites: Annotated[Sequence[str], Option("The sites that take part.", "A,B,C")],
    output: Annotated[Path, Option("Where to write the kits.", "FOLDER")],
    settings: SettingsOptions,
    base: BaseOption = None,
    seed: Annotated[
        int | None, Option("Of the first client part. Default: drawn, and told to sites only.")
    ] = None,
    round_limit_s: Annotated[
        float, Option("After it a round ends without sites that are not done.", min=1)
    ] = 600.0,
    secure: Annotated[
        Path | None, Option("The charter of secure sums; its labs are the sites.", "CHARTER")
    ] = None,
) -> Reply:
    """Make the kits of a split training: certificates, the plan and the first parts.

    Each site draws the first client part again from its seed, and compares. With --base there is
    none, and each site must accept the part (``split client --accept``). 'poolctl settings split
    provision' explains the settings of the plan.

    With --secure, the aggregator gets only the sum of the client parts; with --set
    variant=mean-smashed, the main server gets only means of smashed data. All sites take part in
    each round, logged in to the pool where the charter's servers run.

    Give each process the folder of its name, and nobody two of them: main server and aggregator
    together have the whole network. Delete 'authority' afterwards. Certificates last 360 days.
    """
    plan = PLAN_SETTINGS.read(settings)
    if base and seed is not None:
        raise UsageError("--seed and --base: choose one of the two")
    made = make_kits(
        output,
        plan,
        read_network(base) if base else None,
        addresses={"server": server, "aggregator": aggregator},
        sites=site_names(sites),
        client_seed=seed,
        round_limit_s=round_limit_s,
        charter=read_charter(secure) if secure else None,
    )
    text = [str(kit) for kit in made] + [
        "give each process its folder, and nobody two of them: services run 'poolctl live serve "
        "KIT', sites 'poolctl split client KIT --data DATA'"
    ]
    return Reply({"kits": made, "plan": plan}, text, [str(kit) for kit in made])


@command(app, "client", "split client kits/site-a --data eyes/")
def client(
    invocation: Invocation,
    kit: KitArgument,
    *,
    data: GazeDataOption,
    persons: PersonsOption = "",
    accept: Annotated[
        str, Option("Begin with this part, whose maker may read the images.", "SHA256")
    ] = "",
    most_epsilon: Annotated[
        float | None, Option("Release nothing that would take your data's epsilon beyond this.")
    ] = None,
    despite_findings: DespiteFindingsOption = False,
) -> Reply:
    """Take part in a split training until its last round has ended.

    The images stay here. The main server gets the output of the client part, from which they
    can be guessed ('poolctl split plan' says how much moves). After an interruption, run the same
    command again: the current round starts again. KIT gets the client part.
    """
    from site_agent.federated.tasks import GazeTask
    from site_agent.split.client import SplitClient
    from site_agent.split.rounds_folder import privacy_statement

    opened = read_kit(kit, "site")
    samples = _read(data, persons, despite_findings=despite_findings)
    name = f"the split training of {opened.name}"
    remember_learned(opened.first_client, {"name": name, **GazeTask().learned(samples)})
    invocation.note(privacy_statement(opened))
    invocation.note(f"{opened.name}: {len(samples)} samples; stop with Ctrl-C")
    with ExitStack() as stack:
        stack.enter_context(terminated_as_interrupted())
        lab = None
        if opened.charter:
            place = secure_folder()
            agreed = require_accepted(place, opened.charter)
            board = Board(stack.enter_context(invocation.pool()).secure, charter=agreed)
            lab = Lab(place, opened.name, agreed.digest, board)
        running = SplitClient(
            opened, samples, accepted=accept, most_epsilon=most_epsilon, lab=lab,
            note=invocation.note,
        )  # fmt: skip
        report = stack.enter_context(running).run()
        path = running.part_path
    moved = size_words(report.server_bytes + report.aggregator_bytes)
    text = f"{path}  ({report.rounds} rounds, {report.steps} steps, {moved} moved)"
    return Reply({"output": path, **asdict(report)}, text, [str(path)])


def _read(data: Path, persons: str, *, despite_findings: bool) -> GazeSamples:
    if not data.exists():
        raise InputMissingError(f"{data}: no such folder")
    names = part_words(persons)
    dataset = open_gaze(data).seen_as(EYE)
    require_sound(dataset, persons=names, despite_findings=despite_findings)
    return dataset.read(names or None)


@command(app, "assemble", "split assemble kits/server kits/aggregator -o gaze.safetensors")
def assemble(
    _invocation: Invocation,
    server: Annotated[Path, Argument("The main server's.", "SERVER_KIT")],
    aggregator: Annotated[Path, Argument("The part aggregator's.", "AGGREGATOR_KIT")],
    *,
    output: Annotated[Path, Option("Where to write the network.")],
    force: ForceOption = False,
) -> Reply:
    """Join the parts of the newest round to one network, with a statement of how it was made."""
    from site_agent.split.rounds_folder import assemble as join

    require_free(output, force=force)
    statement = join(read_kit(server, "server"), read_kit(aggregator, "aggregator"), output)
    text = f"{output}  ({len(statement['rounds'])} rounds, digest {statement['network'][:12]}...)"
    return Reply({"output": output, **statement}, [text, statement["privacy"]], [str(output)])


@command(app, "evaluate", "split evaluate kits/site-a --data eyes/ --persons p14")
def evaluate(
    invocation: Invocation,
    kit: KitArgument,
    *,
    data: GazeDataOption,
    persons: PersonsOption = "",
    despite_findings: DespiteFindingsOption = False,
) -> Reply:
    """Score the newest parts on your data: your client part here, the rest at the main server."""
    from site_agent.federated.tasks import GazeTask
    from site_agent.split.client import SplitClient

    samples = _read(data, persons, despite_findings=despite_findings)
    opened, digests = read_kit(kit, "site"), GazeTask().digests(samples)
    # The kit stands for the network, which nobody has.
    if overlap := gaze_overlap(kit / "kit.json", samples, digests, [opened.first_client]):
        invocation.warn(overlap.words)
    with SplitClient(opened, samples, note=invocation.note) as running:
        predicted = running.predict(samples)
    errors = angular_errors_deg(predicted.astype(np.float64), samples.gaze)
    means = {
        str(name): float(errors[samples.person == name].mean()) for name in set(samples.person)
    }
    rows = [[name, f"{means[name]:.2f}"] for name in sorted(means)]
    facts = {"errors_deg": means, "mean_deg": float(np.mean(list(means.values())))}
    return Reply(facts, TableText(["person", "error (deg)"], rows), [f"{facts['mean_deg']:.4f}"])


@command(
    app,
    "simulate",
    "split simulate gaze/ --site-count 5 --set rounds=5 -o gaze.safetensors",
    "split simulate gaze/ --site-count 5 --set cut=u --set variant=v2 -o other.safetensors",
)
def simulate(
    invocation: Invocation,
    dataset: Annotated[Path, Argument("Eye patches with gaze.", "GAZE")],
    *,
    site_count: Annotated[int, Option("Deal the persons to this many sites.", min=3, max=64)] = 5,
    settings: SettingsOptions,
    base: BaseOption = None,
    holdout: Annotated[
        Literal["persons", "none"],
        Option("What no site trains with, to score on: a fifth of the persons."),
    ] = "persons",
    output: Annotated[Path, Option("Where to write the network.")],
    force: ForceOption = False,
) -> Reply:
    """Hold the rounds of a split training in one process, to choose a plan before a training.

    The network has the bytes that services and sites with these names, data and settings make.
    'poolctl split plan' shows how much they would move.
    """
    from site_agent.federated.engines.simulation_folder import divide, score_network
    from site_agent.federated.tasks import GazeTask
    from site_agent.networks.modules import new_network
    from site_agent.split.in_process import run_split_rounds

    require_free(output, force=force)
    plan = PLAN_SETTINGS.read(settings)
    if not dataset.exists():
        raise InputMissingError(f"{dataset}: no such folder")
    seed = plan.training.seed
    with invocation.progress("read patches") as report:
        data = divide(
            dataset, GazeTask(), site_count=site_count, holdout=holdout, seed=seed, progress=report
        )
        samples = {name: site_data.read() for name, site_data in data.sites.items()}
    network = new_network(plan.architecture, seed) if base is None else read_network(base)
    with invocation.progress("split training") as report:
        for round_ in run_split_rounds(network, samples, plan):
            report(round_.number / plan.rounds, f"round {round_.number} of {plan.rounds}")
    digest = write_model(round_.network, output, format_name="safetensors")
    remember_learned(digest, {"name": output.name, **data.learned})
    facts: dict[str, Any] = {"output": output, "digest": digest, "plan": plan}
    text = f"{output}  ({plan.rounds} rounds of {site_count} sites, digest {digest[:12]}...)"
    if data.reference is None:
        return Reply(facts, text, [str(output)])
    scores = score_network(round_.network, data.held_out, data.task)
    mean, constant = PersonScores(scores, data.task.measure).mean, data.reference.mean
    facts |= {"error_deg": mean, "constant_error_deg": constant}
    verdict = f"error on held-out persons {mean:.2f} degrees, of the mean gaze {constant:.2f}"
    return Reply(facts, [verdict, text], [str(output)])
