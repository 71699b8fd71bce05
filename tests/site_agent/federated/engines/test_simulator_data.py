"""Division of gaze data into sites and held-out samples."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from site_agent.datasets.gaze.check import open_gaze
from site_agent.datasets.gaze.records import angular_errors_deg, gaze_digest, held_out_sessions
from site_agent.errors import BusyError, InvalidInputError
from site_agent.federated.engines.simulation_folder import divide, open_run
from site_agent.federated.tasks import GazeTask
from site_agent.networks.modules import new_network
from tests.site_agent.datasets.gaze.made import folder_of, samples_of


@pytest.fixture
def five_persons(tmp_path: Path) -> Path:
    return folder_of(tmp_path, *(samples_of(name, 8, seed) for seed, name in enumerate("abcde")))


def test_each_person_is_a_site_that_trains_without_held_out_sessions(five_persons: Path) -> None:
    data = divide(five_persons, GazeTask())
    everything = open_gaze(five_persons).read()
    assert data.digest == gaze_digest(open_gaze(five_persons))
    assert list(data.sites) == list("abcde")
    training = [site.read() for site in data.sites.values()]
    for (name, site), samples in zip(data.sites.items(), training, strict=True):
        assert set(samples.person) == {name}
        assert len(set(samples.session)) == 1
        assert site.samples == len(samples) == 4
    held = held_out_sessions(everything)
    assert data.held_out is not None
    np.testing.assert_array_equal(data.held_out.patches, everything.patches[held])
    constant = np.broadcast_to(everything.gaze[~held].mean(axis=0), everything.gaze.shape)
    errors = angular_errors_deg(constant, everything.gaze)
    assert data.reference is not None
    assert data.reference.by_person["b"] == pytest.approx(
        errors[held & (everything.person == "b")].mean()
    )


def test_a_fifth_of_the_persons_is_held_out_by_the_seed(five_persons: Path) -> None:
    outside = set()
    for seed in range(8):
        data = divide(five_persons, GazeTask(), holdout="persons", seed=seed)
        assert data.held_out is not None
        persons = set(data.held_out.person)
        assert len(persons) == 1
        assert persons | set(data.sites) == set("abcde")
        outside |= persons
    assert len(outside) > 1


def test_persons_are_dealt_to_sites(five_persons: Path) -> None:
    data = divide(five_persons, GazeTask(), site_count=2, holdout="none")
    persons = {name: site.persons for name, site in data.sites.items()}
    assert persons == {"site-1": ("a", "c", "e"), "site-2": ("b", "d")}
    assert data.held_out is None
    assert data.sites["site-2"].samples == 16
    with pytest.raises(InvalidInputError, match="has 5 persons to train with, expected at least 6"):
        divide(five_persons, GazeTask(), site_count=6)


def test_sessions_cannot_be_held_out_of_one(tmp_path: Path) -> None:
    samples = replace(samples_of(), session=np.full(24, "s0"))
    with pytest.raises(InvalidInputError, match="no person has two sessions"):
        divide(folder_of(tmp_path, samples), GazeTask())


def test_a_folder_belongs_to_one_base_and_one_division(five_persons: Path, tmp_path: Path) -> None:
    data, base, place = (
        divide(five_persons, GazeTask()),
        new_network("gaze-lenet"),
        tmp_path / "run",
    )
    with open_run(place, data, base), pytest.raises(BusyError, match="another simulation"):  # noqa: SIM117
        with open_run(place, data, base):
            pass
    with open_run(place, data, base) as run:
        assert run.base.is_file()
    for other, network, text in (
        (data, new_network("gaze-lenet", 1), "another base"),
        (
            divide(five_persons, GazeTask(), holdout="none"),
            base,
            "other sites, or other samples held out",
        ),
        (replace(data, digest="0" * 64), base, "other data"),
    ):
        with pytest.raises(InvalidInputError, match=text), open_run(place, other, network):
            pass
    with pytest.raises(InvalidInputError, match="holds other files"):  # noqa: SIM117
        with open_run(five_persons.parent, data, base):
            pass
