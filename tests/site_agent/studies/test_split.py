"""The study of split training: its runs go on where they were, and its tables name every method."""

from dataclasses import replace
from pathlib import Path

from site_agent.datasets.gaze.check import open_gaze
from site_agent.datasets.gaze.generic_layout import write_samples
from site_agent.studies.eyes import MethodRun, conduct_study
from site_agent.studies.kinds import SPLIT
from site_agent.studies.runs import Conduct
from site_agent.studies.split import INVERSION, METHODS, QUICK, write_report
from tests.site_agent.federated.small_sites import samples_at


def test_a_study_is_done_once_and_shows_every_method(tmp_path: Path) -> None:
    data = tmp_path / "gaze"
    data.mkdir()
    write_samples(data, [samples_at(number, 10) for number in range(6)])
    methods = ("mean-gaze", "fedavg", "v1")
    settings = replace(
        QUICK, methods=methods, rounds=1, folds=1, levels=(0.0,), passes=1, learning_rate=0.002
    )
    place = tmp_path / "study"
    outcome = conduct_study(SPLIT, place, open_gaze(data), settings, Conduct(workers=1))
    assert (len(outcome.results), outcome.kept, outcome.failed) == (len(methods) + 1, 0, {})
    text = outcome.files[0].read_text()
    assert text.startswith("V1 has an error of ")
    assert all(f"| {label} |" in text for label in (METHODS[name] for name in methods))
    assert "attacker C has a gain of" in text
    assert [path.name for path in outcome.files[3:]] == ["inversion.png", "noise-0_seed0.png"]
    again = conduct_study(SPLIT, place, open_gaze(data), settings, Conduct(workers=1))
    assert again.kept == len(outcome.results)
    assert again.results == outcome.results


def test_methods_with_differential_privacy_are_v1_with_noise_on_what_they_name() -> None:
    for method, covers in (("dp-client", "client"), ("dp-person", "person")):
        plan = QUICK.plan(method, 0)
        assert (plan.variant, plan.dp_covers, plan.is_private) == ("v1", covers, True)
    assert not QUICK.plan("v1", 0).is_private


def test_what_differential_privacy_costs_is_said(tmp_path: Path) -> None:
    errors = {"dp-client": 7.0, "dp-whole": 11.0, "frozen-client": 5.5, "mean-gaze": 11.5}
    runs = [MethodRun(name, 0, ("a", "b", "c"), ("d",), "d") for name in errors]
    results = {run.key: {"error_deg": errors[run.method]} for run in runs}
    _, findings = write_report(tmp_path, runs, results, ["poolctl"])
    assert findings == [
        "With differential privacy V1 has errors of 7.00 (DP of the client part), 11.00 (DP of "
        "both parts) degrees; without it: split, frozen random client part 5.50, mean gaze 11.50."
    ]


def test_noise_that_nothing_learns_from_is_said(tmp_path: Path) -> None:
    run = MethodRun(INVERSION, 0, ("a", "b", "c"), ("d", "e"))
    scores = {
        "gain": 0.1, "mse": 0.01, "ssim": 0.5, "gaze_error_deg": 9.0, "persons_found": 1.0,
        "chance": 0.5,
    }  # fmt: skip
    levels = [
        {"level": level, "error_deg": error, "signal_to_noise_db": None, "attackers": {"B": scores}}
        for level, error in ((0.0, 5.0), (2.0, None))
    ]
    files, findings = write_report(tmp_path, [run], {run.key: {"levels": levels}}, ["poolctl"])
    assert (
        "at noise 2 attacker B has a gain of 0.10 over the mean eye, and V1 cannot be trained"
        in (findings[0])
    )
    assert all(path.is_file() for path in files)
