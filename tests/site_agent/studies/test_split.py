"""The study of split training: its runs go on where they were, and its tables name every method."""

from pathlib import Path
from typing import Any

from site_agent.datasets.gaze.generic_layout import write_samples
from site_agent.settings import with_values
from site_agent.studies.engine import Conduct, hold_study
from site_agent.studies.eyes import open_data
from site_agent.studies.protocol_file import read_protocol
from site_agent.studies.split import split_plan
from tests.site_agent.federated.small_sites import samples_at
from tests.site_agent.studies.drawn_results import results_of, table_of

PROTOCOL = read_protocol("split")


def test_a_study_is_done_once_and_shows_every_method(tmp_path: Path) -> None:
    data = tmp_path / "gaze"
    data.mkdir()
    write_samples(data, [samples_at(number, 10) for number in range(6)])
    methods = ("mean-gaze", "fedavg", "v1")
    sizes: dict[str, Any] = {
        "methods": list(methods), "rounds": 1, "folds": 1, "levels": [0.0], "passes": 1,
        "learning_rate": 0.002,
    }  # fmt: skip
    settings = with_values(PROTOCOL.quick, sizes)
    arguments = (PROTOCOL, tmp_path / "study", open_data([data]), settings, Conduct(workers="1"))
    outcome = hold_study(*arguments)
    assert (len(outcome.results), outcome.kept, outcome.failed) == (len(methods) + 1, 0, {})
    text = outcome.files[0].read_text()
    assert text.startswith("V1 has an error of ")
    assert all(f"| {PROTOCOL.content.labels[name]} |" in text for name in methods)
    assert "attacker C has a gain of" in text
    assert [path.name for path in outcome.files[3:]] == ["inversion.png", "noise-0_seed0.png"]
    again = hold_study(*arguments)
    assert again.kept == len(outcome.results)
    assert again.results == outcome.results


def test_methods_with_differential_privacy_are_v1_with_noise_on_what_they_name() -> None:
    for method, covers in (("dp-client", "client"), ("dp-person", "person")):
        plan = split_plan(PROTOCOL.settings, method, 0)
        assert (plan.variant, plan.dp_covers, plan.is_private) == ("v1", covers, True)
    assert not split_plan(PROTOCOL.settings, "v1", 0).is_private


def test_what_differential_privacy_costs_is_said() -> None:
    errors = {"dp-client": 7.0, "dp-whole": 11.0, "frozen-client": 5.5, "mean-gaze": 11.5}
    rows = [
        {"method": method, "seed": 0, "left_out": "d", "error_deg": error}
        for method, error in errors.items()
    ]
    assert results_of("split", tested=rows).findings() == [
        "With differential privacy V1 has errors of 7.00 (DP of the client part), 11.00 (DP of "
        "both parts) degrees; without it: split, frozen random client part 5.50, mean gaze 11.50."
    ]


def test_noise_that_nothing_learns_from_is_said() -> None:
    scores = {"attacker": "B", "gain": 0.1, "mse": 0.01, "signal_to_noise_db": None}
    rows = [
        {"seed": 0, "level": level, "error_deg": error, **scores}
        for level, error in ((0.0, 5.0), (2.0, None))
    ]
    (finding,) = results_of("split", attacked=rows).findings()
    assert (
        "at noise 2 attacker B has a gain of 0.10 over the mean eye, and V1 cannot be trained"
        in finding
    )


def test_ablations_have_a_row_for_each_cut_and_the_cost_of_each_method() -> None:
    common = {"seed": 0, "left_out": "d", "round": 10, "train_error_deg": 1.0}
    results = results_of(
        "split-ablation",
        cut_at=[{**common, "cut": cut, "error_deg": 5.0, "seconds": 9.0} for cut in ("u", "fc1")],
        trained=[
            {**common, "method": name, "error_deg": 5.5, "seconds": seconds}
            for name, seconds in (("data-centre", 4.0), ("fedavg", 8.0))
        ],
        moved=[{"left_out": "d", "way": way, "bytes": 2e6} for way in ("fedavg", "mpc")],
        posed=[], repeated=[], pruned=[],
    )  # fmt: skip
    assert [row["cut"] for row in table_of(results, "cuts")] == ["fc1", "u", "none: FedAvg"]
    costs = {row["method"]: row for row in table_of(results, "costs")}
    assert costs["FedAvg"]["times_data_centre"] == costs["FedAvg"]["mb_a_round"] == 2.0
    assert costs["generic MPC with 3 servers, at least"]["seconds"] is None
