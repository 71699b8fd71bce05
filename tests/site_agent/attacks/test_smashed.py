"""Smashed data turned back into eyes: honest data show them, noise hides them."""

import io

import numpy as np
import pytest
from PIL import Image

from site_agent.attacks.smashed import SmashedAttackSettings, attack_smashed_data, sheet_of
from site_agent.datasets.gaze.check import open_gaze
from site_agent.datasets.gaze.records import GazeSamples
from site_agent.datasets.synthetic.eye_patches.dataset import RenderSettings, write_eye_dataset
from site_agent.networks.modules import new_network
from site_agent.split.noise import SmashedNoise
from site_agent.split.parts import split_network
from site_agent.split.plan import find_cut
from tests.made_once import made_once

QUICK = SmashedAttackSettings(passes=4, releases=10, batch_size=16, search_steps=60)


@pytest.fixture(scope="module")
def eyes(tmp_path_factory: pytest.TempPathFactory) -> tuple[GazeSamples, GazeSamples]:
    """Shadow persons, and victims."""
    settings = RenderSettings(persons=4, frames_per_person=120, seed=3)
    folder = made_once(
        tmp_path_factory, "camera-eyes", lambda place: write_eye_dataset(place / "eyes", settings)
    )
    samples = open_gaze(folder / "eyes").read()
    is_victim = np.isin(samples.person, ["p00", "p01"])
    return samples[~is_victim], samples[is_victim][::12]


@pytest.mark.slow
def test_noise_hides_what_smashed_data_show_and_averaging_brings_it_back(
    eyes: tuple[GazeSamples, GazeSamples],
) -> None:
    shadow, victims = eyes
    cut = find_cut("gaze-lenet", "pool1")
    part = split_network(new_network("gaze-lenet"), cut).client
    shown, hidden = (
        attack_smashed_data(part, cut, shadow[::2], victims, SmashedNoise(level), settings=QUICK)
        for level in (0.0, 0.05)
    )
    assert shown.results["A"].gain > 0.5
    assert shown.results["C"].gain > 0.5
    assert hidden.signal_to_noise_db < 0
    assert hidden.results["A"].gain < shown.results["A"].gain - 0.05
    assert hidden.results["B"].gain > hidden.results["A"].gain
    assert np.isnan(shown.results["A"].persons_found), "a guess among two is half right"
    with Image.open(io.BytesIO(sheet_of(shown))) as sheet:
        assert sheet.size == (12 * 60 * 2, 5 * 36 * 2)
    assert hidden.results["A"].facts()["gaze_error_deg"] is None


@pytest.mark.parametrize("name", [pytest.param("pool2", marks=pytest.mark.slow), "fc1"])
def test_every_cut_has_its_decoder(eyes: tuple[GazeSamples, GazeSamples], name: str) -> None:
    shadow, victims = eyes
    cut = find_cut("gaze-lenet", name)
    part = split_network(new_network("gaze-lenet"), cut).client
    settings = SmashedAttackSettings(passes=1, batch_size=32, search_steps=0)
    attacked = attack_smashed_data(
        part, cut, shadow[::8], victims[:4], SmashedNoise(), settings=settings
    )
    assert attacked.results["A"].pictures.shape == (4, 36, 60)
