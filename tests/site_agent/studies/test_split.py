"""The study of split training: its runs go on where they were, and its tables name every method."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from site_agent.datasets.gaze import open_gaze, write_samples
from site_agent.studies.runs import Conduct
from site_agent.studies.split import conduct_split_study, make_settings
from site_agent.studies.split.protocol import METHODS
from tests.site_agent.federated.small_sites import samples_at


def test_a_study_is_done_once_and_shows_every_method(tmp_path: Path) -> None:
    data = tmp_path / "gaze"
    data.mkdir()
    write_samples(data, [samples_at(number, 16) for number in range(6)])
    settings = replace(
        make_settings(quick=True), rounds=1, folds=1, levels=(0.0,), passes=1, learning_rate=0.002
    )
    place = tmp_path / "study"
    done = conduct_split_study(place, open_gaze(data), settings, Conduct())
    assert (len(done.results), done.kept) == (len(METHODS) + 1, 0)
    text = done.files[0].read_text()
    assert all(f"| {method} |" in text for method in METHODS)
    assert "| 0.00 | C |" in text
    assert [path.name for path in done.files[3:]] == ["inversion-0.p00.0.png"]
    again = conduct_split_study(place, open_gaze(data), settings, Conduct())
    assert again.kept == len(done.results)
    assert again.results == done.results
