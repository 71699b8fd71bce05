"""One network for 30 rendered persons; minutes of training."""

from pathlib import Path

import pytest

from site_agent.datasets.gaze.check import open_gaze
from site_agent.datasets.synthetic.eye_patches.dataset import write_eye_dataset
from tests.benchmarks.gaze_networks import measure


@pytest.mark.slow
def test_a_network_is_within_three_degrees_on_held_out_sessions(tmp_path: Path) -> None:
    table, count = write_eye_dataset(tmp_path / "eyes")
    assert count > 30_000
    scores, ridge_deg, constant_deg = measure(open_gaze(table), tmp_path, epochs=5)
    assert len(scores.persons) == 30
    assert scores.mean_error_deg <= 3.0
    assert ridge_deg >= 1.3 * scores.mean_error_deg
    assert constant_deg >= 2 * ridge_deg
