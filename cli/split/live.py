"""``poolctl split provision|client|...``: the sites of a split training."""

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np

from cli.frame.errors import InputMissingError, UsageError
from cli.frame.existing_files import require_free
from cli.frame.options import Argument, DespiteFindingsOption, ForceOption, Option, command, single
from cli.frame.output import Invocation, Reply, TableText
from cli.frame.values import site_names
from cli.live import terminated_as_interrupted
from cli.options.data import part_words
from cli.options.merging import MethodOption, method_options
from site_agent.datasets.gaze.check import open_gaze
from site_agent.datasets.gaze.records import GazeSamples, angular_errors_deg
from site_agent.datasets.soundness import require_sound
from site_agent.federated.scores import PersonScores
from site_agent.networks.files import read_network
from site_agent.split.kits import provision as make_kits
from site_agent.split.kits import read_kit
from site_agent.split.plan import SplitPlan, read_split_plan
from site_agent.wording import size_words

if TYPE_CHECKING:
    from site_agent.split.trial import HeldTraining

app = single()

KitArgument = Annotated[Path, Argument("A folder that 'provision' made.", "KIT")]
GazeDataOption = Annotated[
    Path, Option("The site's gaze data. They stay on this machine.", "FOLDER")
]
PersonsOption = Annotated[str, Option("Only these persons. Default: all.", "A,B,...")]
ArchitectureOption = Annotated[
    str, Option("Of the network: gaze-lenet, gaze-lenet-wide or gaze-resnet18.", "NAME")
]
CutOption = Annotated[str, Option("Where the network is cut ('split plan --cuts').", "NAME")]
NoiseOption = Annotated[
    Literal["laplace", "gaussian"], Option("On smashed data, with --noise-level.")
]
NoiseLevelOption = Annotated[
    float, Option("Noise on smashed data, in units of the sensitivity.", min=0)
]


@dataclass(frozen=True)
class PlanOptions:
    """The options of a training plan."""

    architecture: ArchitectureOption = "gaze-lenet"
    cut: CutOption = "pool1"
    variant: Annotated[
        Literal["v1", "v2", "frozen-client"],
        Option(
            "A server part for each site, averaged; one for all, in turns; or smashed data "
            "sent once, with a client part that stays as it is."
        ),
    ] = "v1"
    optimiser: Annotated[Literal["sgd", "adam"], Option("Of both parts.")] = "sgd"
    rounds: Annotated[int, Option("Number of rounds.", min=1, max=100_000)] = 5
    dp_covers: Annotated[
        Literal["client", "whole", "person"],
        Option("With --option dp_epsilon=E: what the noise covers ('split plan')."),
    ] = "client"
    noise: NoiseOption = "laplace"
    noise_level: NoiseLevelOption = 0.0
    base: Annotated[Path | None, Option("Begin with this network, not with a new one.")] = None
    option: MethodOption = ()
    seed: Annotated[int, Option("Seed of the network and of training.", min=0)] = 0

    def plan(self) -> SplitPlan:
        """Return the plan; options are those of the sites' training, and ``mean``."""
        options = method_options(self.option)
        split_options = {key: options.pop(key) for key in ("mean",) if key in options}
        return read_split_plan(
            {
                "architecture": self.architecture, "cut": self.cut, "variant": self.variant,
                "optimiser": self.optimiser, "rounds": self.rounds, **split_options,
                "dp_covers": self.dp_covers, "noise": self.noise, "noise_level": self.noise_level,
                "training": {"seed": self.seed, **options},
            }
        )  # fmt: skip


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
    plan: PlanOptions,
    client_seed: Annotated[
        int | None, Option("Of the first client part. Default: drawn, and told to sites only.")
    ] = None,
    round_limit_s: Annotated[
        float, Option("After it a round ends without sites that are not done.", min=1)
    ] = 600.0,
) -> Reply:
    """Make the kits of a split training: certificates, tokens, the plan and the first parts.

    Each site draws the first client part again from its seed, and compares. With --base there is
    none, and each site must accept the part (``split client --accept-part``).

    Give each process the folder of its name, and nobody two of them: main server and aggregator
    together have the whole network. Delete 'authority' afterwards. Certificates last 360 days.
    """
    chosen = plan.plan()
    if plan.base and client_seed is not None:
        raise UsageError("--client-seed and --base: choose one of the two")
    made = make_kits(
        output,
        chosen,
        read_network(plan.base) if plan.base else None,
        addresses={"server": server, "aggregator": aggregator},
        sites=site_names(sites),
        client_seed=client_seed,
        round_limit_s=round_limit_s,
    )
    text = [str(kit) for kit in made] + ["give each process its folder, and nobody two of them"]
    return Reply({"kits": made, "plan": chosen}, text, [str(kit) for kit in made])


@command(app, "client", "split client kits/site-a --data eyes/")
def client(
    invocation: Invocation,
    kit: KitArgument,
    *,
    data: GazeDataOption,
    persons: PersonsOption = "",
    accept_part: Annotated[
        str, Option("Begin with this part, whose maker may read the images.", "DIGEST")
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
    from site_agent.split.client import SplitClient
    from site_agent.split.rounds_folder import privacy_statement

    opened = read_kit(kit, "site")
    samples = _read(data, persons, despite_findings=despite_findings)
    invocation.note(privacy_statement(opened))
    invocation.note(f"{opened.name}: {len(samples)} samples; stop with Ctrl-C")
    with (
        terminated_as_interrupted(),
        SplitClient(
            opened, samples, accepted=accept_part, most_epsilon=most_epsilon, note=invocation.note
        ) as running,
    ):
        report = running.run()
        path = running.part_path
    moved = size_words(report.server_bytes + report.aggregator_bytes)
    text = f"{path}  ({report.rounds} rounds, {report.steps} steps, {moved} moved)"
    return Reply({"output": path, **asdict(report)}, text, [str(path)])


def _read(data: Path, persons: str, *, despite_findings: bool) -> GazeSamples:
    if not data.exists():
        raise InputMissingError(f"{data}: no such folder")
    names = part_words(persons)
    dataset = open_gaze(data)
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
    from site_agent.split.client import SplitClient

    samples = _read(data, persons, despite_findings=despite_findings)
    with SplitClient(read_kit(kit, "site"), samples, note=invocation.note) as running:
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
    "train",
    "split train gaze/ --site-count 5 --rounds 5 -o run/",
    "split train gaze/ --site-count 5 --rounds 5 --cut u --variant v2 -o other/",
)
def train(
    invocation: Invocation,
    dataset: Annotated[Path, Argument("Eye patches with gaze.", "GAZE")],
    *,
    site_count: Annotated[int, Option("Number of sites.", min=3, max=64)] = 5,
    plan: PlanOptions,
    holdout: Annotated[
        Literal["persons", "none"],
        Option("What no site trains with, to score on: a fifth of the persons."),
    ] = "persons",
    output: Annotated[Path, Option("Folder of the training.", "FOLDER")],
) -> Reply:
    """Hold a split training on this machine: main server, aggregator and sites as processes.

    The persons are dealt to the sites. FOLDER gets the kits, the network and its costs, compared
    with those of FedAvg. After an interruption, run the same command again to continue.
    """
    from site_agent.federated.engines.simulation_folder import divide, score_network
    from site_agent.federated.tasks import GazeTask
    from site_agent.split.rounds_folder import assemble as join
    from site_agent.split.trial import hold_training, local_kits

    chosen = plan.plan()
    if not dataset.exists():
        raise InputMissingError(f"{dataset}: no such folder")
    with invocation.progress("read patches") as report:
        data = divide(
            dataset,
            GazeTask(),
            site_count=site_count,
            holdout=holdout,
            seed=plan.seed,
            progress=report,
        )
    kits = local_kits(output / "kits", chosen, list(data.sites), plan.base)
    program = [sys.executable, "-m", "cli"]
    commands: dict[str, list[str]] = {
        name: [*program, "live", "serve", str(output / "kits" / name)]
        for name in ("aggregator", "server")
    }
    for name, site_data in data.sites.items():
        persons = ",".join(site_data.persons)
        commands[name] = [*program, "split", "client", str(output / "kits" / name)]
        commands[name] += ["--data", str(dataset), "--persons", persons]
        # One person answers for all parties here.
        commands[name] += ["--accept-part", kits[0].first_client]
    samples = {name: site_data.samples for name, site_data in data.sites.items()}
    with invocation.progress("split training") as report:
        held = hold_training(kits, samples, commands, timeout_s=24 * 3600, progress=report)
    network = output / "network.safetensors"
    statement = join(kits[0], kits[1], network)
    errors: dict[str, Any] = {}
    text: list[str | TableText] = []
    if data.reference is not None:
        scores = score_network(read_network(network), data.held_out, data.task)
        mean = PersonScores(scores, data.task.measure).mean
        errors = {"error_deg": mean, "constant_error_deg": data.reference.mean}
        text.append(
            f"error on held-out persons {mean:.2f} degrees, of the mean gaze "
            f"{data.reference.mean:.2f}"
        )
    text += [*_costs(held), f"{network}  (digest {statement['network'][:12]}...)"]
    facts = {
        "output": network, "digest": statement["network"], **errors, "sites": held.reports,
        "step_bytes": held.step_bytes, "part_bytes": held.part_bytes,
        "formula_bytes": held.formula, "seconds": held.seconds,
    }  # fmt: skip
    return Reply(facts, text, [str(network)])


def _costs(held: "HeldTraining") -> list[str | TableText]:
    formula = held.formula
    moved = held.step_bytes + held.part_bytes
    rows = [
        [
            report.site, str(report.samples), str(report.steps), size_words(report.server_bytes),
            size_words(report.aggregator_bytes), f"{report.training_seconds:.1f}",
            size_words(report.peak_memory_bytes),
        ]
        for report in held.reports
    ]  # fmt: skip
    columns = ["site", "images", "steps", "to server", "to aggregator", "seconds", "memory"]
    return [
        f"{size_words(moved)} moved in {held.seconds:.1f} s; the formula says "
        f"{size_words(formula.split)}, FedAvg moves {size_words(formula.fedavg)}",
        TableText(columns, rows),
    ]
