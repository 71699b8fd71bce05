"""Split training as users start it: services and clients as processes, which may be killed."""

import json
from pathlib import Path
from typing import Any

import pytest

from aggregators import file_digest
from aggregators.methods.round_options import LocalTraining
from site_agent.datasets.gaze.check import open_gaze
from site_agent.datasets.gaze.generic_layout import write_samples
from site_agent.federated.plan import first_model
from site_agent.networks.modules import new_network
from site_agent.pool.profiles import privacy_folder
from site_agent.split.in_process import run_split_rounds
from site_agent.split.kits import read_kit
from site_agent.split.plan import SplitPlan
from site_agent.training.gaze.loop import repeatable
from tests.cli.conftest import Run, run_here
from tests.cli.split.split_processes import SplitProcesses
from tests.site_agent.federated.small_sites import samples_at
from tests.site_agent.split.live_split import live_split
from tests.waiting import wait_until


def expected_digest(processes: SplitProcesses) -> str:
    """Return the digest of the network that one process makes of the same data."""
    plan = read_kit(processes.kits / "server").plan
    *_, last = run_split_rounds(new_network(plan.architecture), processes.samples(), plan)
    return first_model(last.network).digest


@pytest.mark.parametrize(
    ("rounds", "kills"),
    [(2, 2), pytest.param(30, 10, marks=[pytest.mark.slow, pytest.mark.timeout(900)])],
)
def test_what_is_killed_goes_on_where_it_was(tmp_path: Path, rounds: int, kills: int) -> None:
    arguments = (f"--set=rounds={rounds}", "--set=learning_rate=0.002")
    processes = SplitProcesses(tmp_path, *arguments)
    processes.start()
    # Starting takes seconds: nobody is killed before all are at work.
    wait_until(lambda: any((processes.kits / "server").glob("rounds/round-*/*")))
    killed = processes.kill_at_random(kills)
    assert kills < 10 or killed == kills, "the training ended before"
    for outcome in processes.wait_for_clients().values():
        assert outcome.code == 0, outcome.err
    output = tmp_path / "network.safetensors"
    assert processes.assemble(output).data["network"] == expected_digest(processes)
    site, warning = next(iter(processes.persons)), "images are those that the split training of"
    scored = run_here("split", "evaluate", processes.kits / site, "--data", processes.data)
    assert f"the parts after {rounds} of {rounds} rounds" in scored.err
    assert warning in scored.err
    assert warning in run_here("evaluate", output, processes.data, "--set=resamples=20").err


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("rounds", "kills"), [(2, 2), (12, 10)])
def test_no_step_leaves_before_it_is_counted(tmp_path: Path, rounds: int, kills: int) -> None:
    """Clients of a private training are killed while the services see every step of theirs."""
    plan = SplitPlan.model_validate(
        {"rounds": rounds, "training": LocalTraining(dp_epsilon=8.0, learning_rate=0.002)}
    )
    seen: set[tuple[str, int, int]] = set()
    uncounted = []

    def counted(site: str, number: int, attempt: int) -> bool:
        lines = (privacy_folder() / "spent.jsonl").read_text().splitlines()
        releases = [entry for line in lines if "release" in (entry := json.loads(line))]
        name = f"{number} of {plan.digest[:16]}, attempt {attempt}"
        persons = [processes.persons[site]]
        charged = [entry for entry in releases if entry["persons"] == persons]
        return [entry["round"] for entry in charged].count(name) == 1

    processes = SplitProcesses(tmp_path, made=True)
    with repeatable(), live_split(tmp_path, plan) as live:
        find = live.server._session

        def find_session(*training: Any) -> Any:
            """Begin a step, as each message of a client does."""
            if not counted(*training):
                uncounted.append(training)
            seen.add(training)
            return find(*training)

        live.server._session = find_session  # type: ignore[method-assign]
        processes.start(*processes.persons)
        wait_until(lambda: bool(seen))
        killed = processes.kill_at_random(kills, processes.persons)
        for outcome in processes.wait_for_clients().values():
            assert outcome.code == 0, outcome.err
        assert live.server.rounds.is_finished
    assert killed == kills
    assert not uncounted
    assert len(seen) >= rounds * len(processes.persons)


def test_a_simulation_makes_the_network_of_its_plan(tmp_path: Path) -> None:
    data, output = tmp_path / "gaze", tmp_path / "gaze.safetensors"
    data.mkdir()
    people = [samples_at(number) for number in range(3)]
    write_samples(data, people)
    arguments = ["split", "simulate", data, "--site-count", 3, "--holdout", "none", "-o", output]
    made = run_here(*arguments, "--set=rounds=1", "--json").data
    sites = {
        f"site-{number}": open_gaze(data).read([str(samples.person[0])])
        for number, samples in enumerate(people, start=1)
    }
    *_, last = run_split_rounds(new_network("gaze-lenet"), sites, SplitPlan(rounds=1))
    assert file_digest(output) == made["digest"] == first_model(last.network).digest
    assert run_here(*arguments, "--json").error["code"] == "file_exists"
    assert "images are those that gaze.safetensors was trained on" in (
        run_here("evaluate", output, data, "--set=resamples=20").err
    )


def test_wrong_kits_and_words_are_refused(tmp_path: Path, poolctl: Run) -> None:
    arguments = ["--aggregator", "localhost:2", "-o", tmp_path / "kits"]
    sites = ["--sites", "a,b,c"]
    refused = poolctl("split", "provision", "--server", "localhost", *arguments, *sites)
    assert "expected HOST:PORT" in refused.err
    refused = poolctl("split", "provision", "--server", "localhost:1", *arguments, "--sites", "a,b")
    assert "found 2 sites, expected at least 3" in refused.err
    refused = poolctl(
        "split", "provision", "--server", "localhost:1", *arguments, *sites, "--set=cut=x"
    )
    assert "no cut 'x'" in refused.err
    turns = [*arguments, *sites, "--set=variant=v2"]
    refused = poolctl("split", "provision", "--server", "localhost:1", *turns)
    assert "processes hold v1 and mean-smashed" in refused.err
    private = [*arguments, *sites, "--set=dp_epsilon=8", "--set=dp_covers=person"]
    refused = poolctl("split", "provision", "--server", "localhost:1", *private)
    assert "the noise belongs to the mean over persons" in refused.err
    assert "found no kit" in poolctl("live", "serve", tmp_path).err
    assert poolctl("split", "provision", "--server", "localhost:1", *arguments, *sites).code == 0
    refused = poolctl("live", "serve", tmp_path / "kits" / "a")
    assert "is the kit of a site, expected server or aggregator" in refused.err
    poolctl("live", "status", tmp_path / "kits" / "a").fails(8, "does not answer")
