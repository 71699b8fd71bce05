"""The data with which sites train networks: eye patches with gaze, or egocentric clips."""

from collections.abc import Sequence
from pathlib import Path

from site_agent.datasets.egocentric import EgocentricDataset, is_egocentric, open_egocentric
from site_agent.datasets.gaze.check import is_gaze_data, open_gaze
from site_agent.datasets.gaze.records import GazeDataset, person_digests
from site_agent.errors import InvalidInputError

NetworkData = GazeDataset | EgocentricDataset


def is_network_data(path: Path) -> bool:
    """Return whether a path holds gaze data or egocentric clips."""
    return is_egocentric(path) or is_gaze_data(path)


def open_network_data(path: Path) -> NetworkData:
    """Open a folder of gaze data or of egocentric clips."""
    if not path.exists():
        raise InvalidInputError(f"{path}: no such folder; expected gaze data or egocentric clips")
    return open_egocentric(path) if is_egocentric(path) else open_gaze(path)


def gaze_of(data: Path | NetworkData) -> GazeDataset:
    """Return the eye patches of a folder, or of open data; raise `InvalidInputError` for clips."""
    dataset = open_network_data(data) if isinstance(data, Path) else data
    if isinstance(dataset, GazeDataset):
        return dataset
    raise InvalidInputError(
        f"{dataset.path}: holds egocentric clips; the network is trained with eye patches",
        hint="Choose a network for clips, such as glc-tiny.",
    )


def clips_of(data: Path | NetworkData) -> EgocentricDataset:
    """Return the clips of a folder, or of open data; raise `InvalidInputError` for patches."""
    dataset = open_network_data(data) if isinstance(data, Path) else data
    if isinstance(dataset, EgocentricDataset):
        return dataset
    raise InvalidInputError(
        f"{dataset.path}: holds eye patches; the network is trained with egocentric clips",
        hint="Choose a network for eye patches, such as gaze-lenet.",
    )


def digest_data(data: NetworkData, persons: Sequence[str] = ()) -> dict[str, str]:
    """Return the digest of each person's data; of clips, of their gaze without the pictures."""
    if isinstance(data, GazeDataset):
        return person_digests(data.read(sorted(set(persons)) or None))
    return {name: data.only([name]).digest for name in sorted(set(persons)) or data.persons}
