"""``poolctl federated``: networks that several sites train together.

A new network and the rounds on one machine are here; the processes of live rounds are in `live`.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from aggregators.formats import write_model
from aggregators.methods.registry import find_method
from aggregators.models import StateDict
from cli.federated import live
from cli.frame.errors import UsageError
from cli.frame.existing_files import require_free
from cli.frame.options import Argument, DespiteFindingsOption, ForceOption, Option, command, group
from cli.frame.output import Invocation, Reply, Report, TableText
from cli.frame.values import key_value_pairs
from cli.options.data import CohortOption, RoundCountOption
from cli.options.engine import EngineOptions
from site_agent.datasets.network_data import open_network_data
from site_agent.datasets.soundness import require_sound
from site_agent.federated.plan import FederationPlan, make_plan
from site_agent.federated.scores import PersonScores
from site_agent.networks.architectures import find_architecture
from site_agent.networks.files import read_network
from site_agent.networks.lab_networks import name_network
from site_agent.work import part_of

if TYPE_CHECKING:
    from site_agent.federated.engines.simulation_folder import DividedData, History

app = group("Train networks together with other sites.")
app.add_typer(live.app)


# ``poolctl federated init``: a network from which a federation begins.
DEFAULT_ARCHITECTURE = "gaze-lenet"
ArchitectureOption = Annotated[
    str,
    Option(
        "Of the new network: gaze-lenet, gaze-lenet-wide, gaze-resnet18; of faces "
        "gaze-face-resnet18, gaze-face-resnet18-448; itracker; near-eye, near-eye-pupil; without "
        "labels cross-encoder-small or cross-encoder; for clips glc-tiny, glc-small, "
        "glc-8 or glc-paper; or PACKAGE:CLASS, a torch module of your own.",
        "NAME",
    ),
]


@command(
    app,
    "init",
    "federated init -o base.safetensors",
    "federated init --architecture gaze-resnet18 --seed 1 -o base.safetensors",
)
def init(
    _invocation: Invocation,
    *,
    architecture: ArchitectureOption = DEFAULT_ARCHITECTURE,
    seed: Annotated[int, Option("Seed of the random parameters.", min=0)] = 0,
    output: Annotated[Path, Option("Where to write the network.")],
    force: ForceOption = False,
) -> Reply:
    """Write a new network as a base for rounds.

    Its parameters are random; equal seeds give equal networks. Upload it for rounds through a pool.
    """
    from site_agent.networks.modules import new_network

    name_network(architecture)
    description = find_architecture(architecture)
    require_free(output, force=force)
    digest = write_model(new_network(architecture, seed), output, format_name="safetensors")
    data = {
        "output": output,
        "architecture": architecture,
        "parameters": description.parameters,
        "seed": seed,
        "digest": digest,
    }
    size = f"{description.parameters:,} parameters"
    text = f"{output}  ({architecture}, {size}, digest {digest[:12]}...)"
    return Reply(data, text, [str(output)])


# ``poolctl federated simulate``: the rounds of several sites on one machine.


@command(
    app,
    "simulate",
    "federated simulate gaze/ --method fedavg --method fedadam --rounds 30 -o run/",
    "federated simulate gaze/ --method median --rounds 30 --site-count 10 -o run/",
    "federated simulate gaze/ --method fedadam --rounds 30 --option eta=2 -o other/",
)
def simulate(
    invocation: Invocation,
    dataset: Annotated[Path, Argument("Eye patches with gaze, or egocentric clips.", "DATA")],
    *,
    method: Annotated[
        Sequence[str], Option("How updates are combined, such as fedavg or fedadam; repeatable.")
    ],
    rounds: RoundCountOption,
    output: Annotated[Path, Option("Folder of the simulation.", "FOLDER")],
    site_count: Annotated[
        int | None, Option("Deal the persons to N sites. Default: each person is a site.", min=2)
    ] = None,
    base: Annotated[Path | None, Option("Begin with this network, not with a new one.")] = None,
    architecture: ArchitectureOption = DEFAULT_ARCHITECTURE,
    option: Annotated[
        Sequence[str],
        Option("Of the method (eta=2) or of training (epochs=2); repeatable.", "KEY=VALUE"),
    ] = (),
    cohort: CohortOption = 1.0,
    holdout: Annotated[
        Literal["sessions", "persons", "none"],
        Option("What no site trains with: sessions (test clips), or a fifth of the persons."),
    ] = "sessions",
    seed: Annotated[int, Option("Seed of the network, of training and of cohorts.", min=0)] = 0,
    despite_findings: DespiteFindingsOption = False,
    engine: EngineOptions,
) -> Reply:
    """Hold the rounds of several sites on this machine, to choose a method before a federation.

    Each person is a site. The table compares the methods after the last round, on samples with
    which no site has trained, each person with the network of her site. Rounds of real sites with
    these names, data and options give the same networks.

    FOLDER gets all networks, and the scores of all rounds (history.json). After an interruption,
    run the same command again to continue; with more rounds or other methods, it adds them.
    """
    from site_agent.federated.engines.simulation_folder import divide
    from site_agent.federated.tasks import task_of_network
    from site_agent.networks.modules import new_network

    plans = _plans(
        method, rounds, cohort, {"seed": str(seed), **key_value_pairs(option, "--option")}
    )
    name_network(architecture)
    network = new_network(architecture, seed) if base is None else read_network(base)
    task = task_of_network(network)
    with invocation.progress("read data") as report:
        require_sound(
            open_network_data(dataset), despite_findings=despite_findings, progress=report
        )
        data = divide(
            dataset, task, site_count=site_count, holdout=holdout, seed=seed, progress=report
        )
    for line in _noise(plans, data, network, is_new=base is None):
        invocation.note(line)
    with invocation.progress("simulate") as report:
        histories = _simulate(plans, output, data, network, engine=engine, report=report)
    for history in histories:
        for warning in history.rounds[-1].warnings:
            invocation.warn(f"{history.plan.method}, round {len(history.rounds)}: {warning}")
    return _reply(histories, output, data)


def _plans(
    methods: Sequence[str], rounds: int, cohort: float, options: dict[str, str]
) -> list[FederationPlan]:
    """Return the plan of each method; an option of one method goes to that method only."""
    if len(set(methods)) < len(methods):
        raise UsageError("--method: expected each method once")
    own_options = {name: set(find_method(name).options_type.model_fields) for name in methods}
    some = set().union(*own_options.values())
    return [
        make_plan(
            name,
            {
                key: value
                for key, value in options.items()
                if key in own_options[name] or key not in some
            },
            rounds=rounds,
            cohort=cohort,
        )
        for name in methods
    ]


def _simulate(
    plans: Sequence[FederationPlan],
    output: Path,
    data: "DividedData",
    network: StateDict,
    *,
    engine: EngineOptions,
    report: Report,
) -> "list[History]":
    from site_agent.federated.engines.simulation_folder import open_run
    from site_agent.federated.engines.simulator import simulate, simulator_workers

    histories = []
    with (
        open_run(output, data, network, engine.chosen_share) as run,
        simulator_workers(len(data.sites), engine.workers, output) as workers,
    ):
        for number, plan in enumerate(plans):
            part = part_of(report, number / len(plans), (number + 1) / len(plans))
            histories.append(simulate(plan, run, data, workers, part))
    return histories


def _noise(
    plans: Sequence[FederationPlan], data: "DividedData", network: StateDict, *, is_new: bool
) -> list[str]:
    """Describe the noise that differential privacy will add to the results."""
    from site_agent.networks.modules import to_module

    private = [plan for plan in plans if plan.training.dp_epsilon is not None]
    if not private:
        return []
    from site_agent.federated.private_training import noise_words, trained_parameters

    lines, fewest = [], min(data.sites.values(), key=lambda part: part.samples)
    for plan in private:
        trained = trained_parameters(to_module(network), plan.training).values()
        units = len(fewest.persons) if plan.training.dp_unit == "person" else fewest.samples
        line = noise_words(
            plan.training,
            units,
            sum(part.numel() for part in trained),
            len(plan.sites_in(1, data.sites)),
        )
        lines.append(f"{plan.method}: {line}")
    if is_new and any(plan.training.dp_layers == "last" for plan in private):
        lines.append("only the last layer learns: begin with a network trained elsewhere (--base)")
    return lines


def _reply(histories: "Sequence[History]", output: Path, data: "DividedData") -> Reply:
    networks = [
        output / item.plan.method / f"round-{len(item.rounds):03}.safetensors" for item in histories
    ]
    reference = data.reference
    facts = {
        "folder": output,
        "sites": {site: item.samples for site, item in data.sites.items()},
        "measure": data.task.measure,
        "reference_scores": None if reference is None else reference.by_person,
        "methods": [
            {"plan": item.plan.model_dump(), "network": network, "rounds": item.rounds}
            for item, network in zip(histories, networks, strict=True)
        ],
    }
    text: list[str | TableText] = []
    if reference is not None:
        measure = reference.measure
        scores = {
            item.plan.method: PersonScores(item.rounds[-1].scores, measure) for item in histories
        }
        passes = {
            item.plan.method: item.plan.options["epochs"] * len(item.rounds) for item in histories
        }
        text += [_verdict(scores, reference), _table(scores, reference, passes)]
    text += [f"{network}" for network in networks]
    return Reply(facts, text, [str(network) for network in networks])


def _verdict(scores: Mapping[str, PersonScores], reference: PersonScores) -> str:
    """Name the best method, and whether it beats a guess without pictures."""
    measure, sign = reference.measure, 1 if reference.measure.larger_is_better else -1
    best = max(scores, key=lambda name: sign * scores[name].mean)
    better = sign * scores[best].mean > sign * reference.mean
    return (
        f"{best}: {measure.name} {scores[best].mean:.2f} {measure.unit}".rstrip()
        + f", {'better' if better else 'no better'} than the {measure.reference} "
        + f"({reference.mean:.2f})"
    )


def _table(
    methods: Mapping[str, PersonScores], reference: PersonScores, passes: Mapping[str, int]
) -> TableText:
    rows = []
    for name, scores in {**methods, reference.measure.reference: reference}.items():
        change = 100 * (scores.mean / reference.mean - 1) if reference.mean else 0.0
        rows.append(
            [
                name,
                f"{scores.mean:.2f}",
                f"{scores.by_person[scores.worst]:.2f} ({scores.worst})",
                f"{scores.best_score:.2f}",
                str(passes.get(name, "")),
                "" if scores is reference else f"{change:+.0f} %",
            ]
        )
    mean = f"mean ({reference.measure.unit})" if reference.measure.unit else "mean"
    columns = ["method", mean, "worst person", "best person", "passes", "against the last row"]
    return TableText(columns, rows)
