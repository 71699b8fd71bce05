"""A site's ledger against differences of sums, and its training in a round."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from aggregators.methods.round_options import LocalTraining
from aggregators.models import NetworkContribution, StateDict
from aggregators.whole_file import write_whole
from site_agent.errors import BusyError, ContributionWithheldError, TrainingDataError
from site_agent.federated.contribution_ledger import (
    ContributionLedger,
    RoundOfSeries,
    most_step,
    norm_of,
)
from site_agent.federated.in_process import run_rounds
from site_agent.federated.local_training import clip_update, train_at_site
from site_agent.federated.plan import first_model, make_plan
from site_agent.networks.modules import new_network
from site_agent.work.locks import locked
from tests.site_agent.federated.small_sites import moved, samples_at, small_sites

pytestmark = pytest.mark.usefixtures("small_lenet")

LABS = ("lab-a", "lab-b", "lab-c", "lab-d")


def a_round(
    series: str, number: int = 1, sites: tuple[str, ...] = LABS, step: float = 0.25
) -> RoundOfSeries:
    return RoundOfSeries(f"{number} of {series}", series, number, "lab-a", sites, step)


def one_ulp(network: StateDict) -> StateDict:
    bias = np.array(network.tensors["fc2.bias"])
    bias[0] = np.nextafter(bias[0], np.float32(np.inf))
    return StateDict({**network.tensors, "fc2.bias": bias}, network.infos, network.metadata)


def with_units_scaled(network: StateDict) -> StateDict:
    """Return a network with equal answers: one layer is doubled, and the next one halved."""
    tensors = dict(network.tensors)
    for name in ("fc1.weight", "fc1.bias"):
        tensors[name] = 2 * tensors[name]
    tensors["fc2.weight"] = tensors["fc2.weight"] / 2
    return StateDict(tensors, network.infos, network.metadata)


def moved_by_1_percent(network: StateDict) -> StateDict:
    return moved(network, 0.01)


def not_at_all(network: StateDict) -> StateDict:
    return network


def test_the_secret_is_drawn_while_no_other_process_is_at_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = []

    def write(path: Path, content: str, **options: int) -> None:
        busy = BusyError("another process is at work")
        with pytest.raises(BusyError), locked(tmp_path / ".contributions.jsonl.lock", busy=busy):
            written.append("while it was not held")
        written.append(path.name)
        write_whole(path, content, **options)

    monkeypatch.setattr("site_agent.federated.contribution_ledger.write_whole", write)
    ContributionLedger(tmp_path).admit(a_round("one"), new_network("gaze-lenet"), "ab" * 32)
    assert written == ["secret"]


@pytest.mark.parametrize("alter", [not_at_all, one_ulp, with_units_scaled, moved_by_1_percent])
def test_nearly_the_same_network_is_not_trained_with_fewer_sites(
    alter: Callable[[StateDict], StateDict], tmp_path: Path
) -> None:
    """{a,b,c,d} less {a,b,c} is lab-d's update, in plain and secure rounds alike."""
    ledger, network = ContributionLedger(tmp_path), new_network("gaze-lenet", 1)
    other = alter(network)
    assert ledger.admit(a_round("first"), network, "digest-1") == 0
    with pytest.raises(ContributionWithheldError, match=r"with other sites \(lab-a, .* lab-d\)"):
        ledger.admit(a_round("second", sites=LABS[:3]), other, "digest-2")
    needed = ledger.admit(a_round("second"), other, "digest-2")
    assert needed == 3, "the same sites contribute again, all of them"
    ledger.admit(a_round("third", sites=LABS[:3]), new_network("gaze-lenet", 2), "digest-3")


def test_another_start_that_converges_to_the_same_network_is_the_same(tmp_path: Path) -> None:
    ledger, network = ContributionLedger(tmp_path), new_network("gaze-lenet", 1)
    ledger.admit(a_round("first"), network, "digest-1")
    far, others = moved(network, 0.2), LABS[:3]
    ledger.admit(a_round("second", sites=others), far, "digest-2")
    between = {x: (far.tensors[x] + 15 * network.tensors[x]) / 16 for x in network.tensors}
    near = StateDict(between, network.infos, network.metadata)
    with pytest.raises(ContributionWithheldError, match="nearly the same network"):
        ledger.admit(a_round("second", 2, others), near, "digest-3")


def test_a_network_in_place_of_a_result_is_refused(tmp_path: Path) -> None:
    """The pool of plain rounds, and the server of live ones, could name any network."""
    ledger, base = ContributionLedger(tmp_path), new_network("gaze-lenet", 1)
    plan = make_plan("fedavg", {"batch_size": 8}, rounds=2)
    step = most_step("fedavg", plan.split)
    ledger.admit(a_round("series", step=step), base, "digest-1")
    with pytest.raises(ContributionWithheldError, match="it is not their result"):
        ledger.admit(a_round("series", 2, step=step), new_network("gaze-lenet", 2), "digest-2")
    [first, _] = run_rounds(base, small_sites(), plan)
    ledger.admit(a_round("series", 2, step=step), first.model.network, first.model.digest)


@pytest.mark.parametrize(
    "method", ["fedavgm", "fedadam", "fedyogi", "fedadagrad", "median", "fedper"]
)
def test_honest_results_stay_within_the_bound(method: str) -> None:
    base = new_network("gaze-lenet", 1)
    plan = make_plan(method, {"batch_size": 8}, rounds=2)
    for held in run_rounds(base, small_sites(), plan):
        network = held.model.network
        differences = {x: network.tensors[x] - base.tensors[x] for x in base.tensors}
        moved_by = norm_of(StateDict(differences, base.infos)) / norm_of(base)
        assert moved_by < most_step(method, plan.split)
        base = network


def test_an_update_is_shortened_to_a_share_of_the_base() -> None:
    model = first_model(new_network("gaze-lenet", 1))

    def length(**options: float) -> float:
        settings = LocalTraining(batch_size=8, **options)  # type: ignore[arg-type]
        made = train_at_site(
            model.network, model.digest, samples_at(1), settings, site="lab-a", round_number=1
        ).contribution
        return norm_of(made.network) / norm_of(model.network)

    free = length()
    assert free < 0.25, "the default shortens nothing here"
    assert length(most_change=free / 2) == pytest.approx(free / 2, rel=1e-3)


def test_two_updates_of_a_lab_do_not_cancel_as_their_order_is_secret(tmp_path: Path) -> None:
    model, settings = first_model(new_network("gaze-lenet", 1)), LocalTraining(batch_size=8)
    ledgers = [ContributionLedger(tmp_path / name) for name in ("here", "elsewhere")]

    def update(seed: int) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
        made = train_at_site(
            model.network, model.digest, samples_at(1), settings, site="lab-a", round_number=1,
            order_seed=seed,
        )  # fmt: skip
        return made.contribution.network.tensors["fc1.weight"].reshape(-1)

    seeds = [x.order_seed("lab-a", name, model.digest) for x in ledgers for name in ("1", "2")]
    assert len(set(seeds)) == 4
    assert seeds[0] == ledgers[0].order_seed("lab-a", "1", model.digest)
    one, other = update(seeds[0]), update(seeds[1])
    assert np.array_equal(one, update(seeds[0]))
    assert np.corrcoef(one, other)[0, 1] < 0.9


def _train(round_number: int, count: int = 33, *, max_hours: float = 1.0) -> NetworkContribution:
    return train_at_site(
        new_network("gaze-lenet"),
        "0" * 64,
        samples_at(5, count),
        LocalTraining(batch_size=16),
        site="site-a",
        round_number=round_number,
        max_hours=max_hours,
    ).contribution


def test_equal_inputs_give_equal_differences() -> None:
    first, again, later = _train(1), _train(1), _train(2)
    assert first.samples == 33
    assert first.holds == "differences"
    for name in first.network.infos:
        np.testing.assert_array_equal(first.network.tensors[name], again.network.tensors[name])
    assert not np.array_equal(
        first.network.tensors["fc2.weight"], later.network.tensors["fc2.weight"]
    )


def test_an_update_is_shortened_to_a_norm_and_keeps_its_direction() -> None:
    made = _train(1)
    floats = [name for name, info in made.network.infos.items() if info.dtype == "F32"]
    first, clipped = (
        np.concatenate([item.network.tensors[name].ravel() for name in floats]).astype(np.float64)
        for item in (made, clip_update(made, 0.01))
    )
    norm = float(np.linalg.norm(first))
    assert np.linalg.norm(clipped) == pytest.approx(0.01, rel=1e-5)
    assert first @ clipped == pytest.approx(0.01 * norm, rel=1e-5)
    assert clip_update(made, 2 * norm) is made


def test_a_training_that_would_take_too_long_is_refused_at_its_first_steps() -> None:
    with pytest.raises(ContributionWithheldError, match="--max-hours"):
        _train(1, max_hours=1e-7)


def test_a_single_sample_is_refused() -> None:
    with pytest.raises(TrainingDataError, match="found 1 samples, expected at least 2"):
        _train(1, count=1)


def test_a_site_with_fewer_samples_than_the_terms_ask_for_takes_no_part() -> None:
    asked = LocalTraining(least_samples=17)
    with pytest.raises(TrainingDataError, match="found 16 samples, expected at least 17"):
        train_at_site(
            new_network("gaze-lenet"), "ab" * 32, samples_at(1, 16), asked,
            site="site-a", round_number=1,
        )  # fmt: skip
