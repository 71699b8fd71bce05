"""``poolctl study egocentric``: personalised rounds of saliency and gaze networks."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

from cli.frame.options import Argument, Option
from cli.frame.output import Invocation, Reply
from cli.options import studies
from cli.options.data import part_words

EXAMPLES = [
    "study egocentric --drawn --quick -o study/",
    "study egocentric clips/ -o study/ --seeds 3",
    "study egocentric --drawn --quick --methods local,fedavg,fedcpf -o study/",
]


def study_egocentric(
    invocation: Invocation,
    dataset: Annotated[
        Path | None, Argument("Egocentric clips of several persons.", "[CLIPS]")
    ] = None,
    *,
    study: studies.StudyOptions,
    drawn: Annotated[
        bool, Option("Draw persons who look alike, and of their own, instead of CLIPS.")
    ] = False,
    quick: Annotated[bool, Option("A smaller study, of at most 90 minutes on two cores.")] = False,
    methods: Annotated[str, Option("Only these methods. Default: all.", "A,B,...")] = "",
    seeds: Annotated[
        int, Option("Repetitions with other persons and starts; 0: the default.", min=0)
    ] = 0,
) -> Reply:
    """Compare personalised methods: does a network of one's own for each person help?

    Each person is a site. The methods are local training, FedAvg, FedProx, FedPer, FedPAC,
    FedSelect, FedCPF and its random control, each with its best learning rate. With --drawn, on
    persons who look at the same things and who do not, and on gaze networks of drawn eyes.

    FOLDER gets table.md, a CSV file for each table, curves over rounds and over FedCPF's options,
    the result of each run, and study.json. After an interruption, run the same command again to
    continue.
    """
    from site_agent.datasets.egocentric import open_egocentric
    from site_agent.studies import egocentric

    studies.data_or_drawn(dataset, drawn, name="CLIPS")
    base = egocentric.QUICK if quick else egocentric.EgocentricStudySettings()
    settings = replace(base, seeds=seeds or base.seeds, methods=part_words(methods) or base.methods)
    data = None if dataset is None else open_egocentric(dataset)
    worlds = egocentric.worlds_of(settings, data)
    if study.dry_run:
        planned = egocentric.plan_tuning(worlds, settings)
        summary = f"would choose rates by {len(planned)} runs, and compare in {', '.join(worlds)}"
        rows = [[run.world, run.method, f"{run.rate:g}"] for run in planned]
        return studies.plan_reply(planned, ["world", "method", "learning rate"], rows, summary)
    more = ["--methods", methods] * bool(methods) + ["--seeds", str(seeds)] * bool(seeds)
    repeat = studies.repeat_words("egocentric", dataset, quick=quick, more=more)
    with studies.conducted(invocation, study, repeat) as conduct:
        done = egocentric.conduct_egocentric_study(study.output, data, settings, conduct)
    return studies.study_reply(done, study)
