"""Starter: a landmark model of the eyes, trained on drawn faces for a first look at a video."""

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from site_agent.datasets.conversion import read_faces
from site_agent.plain_json import write_json
from site_agent.training.ert import FOR_BLINKS, ErtSettings, train_ert
from site_agent.training_record import TrainingResult
from site_agent.work import Progress, no_progress, part_of
from site_agent.work.locks import locked

IMAGE_COUNT = 250
GLASSES_SHARE = 1 / 3
"""Share of a starter's drawn persons with glasses."""
_MANY_FACES = 1000
_KEPT = f"starter-1-{IMAGE_COUNT}.dat"
"""Name in the cache; the first number changes with the drawing or the training."""


def train_starter(
    output: Path, image_count: int = IMAGE_COUNT, progress: Progress = no_progress
) -> TrainingResult:
    """Draw faces, and train on them; the training record says that they are drawn."""
    from site_agent.datasets.synthetic.sites import write_face_dataset

    with TemporaryDirectory() as folder:
        # A model that has seen no glasses loses the lids behind thick rims and strong lenses.
        faces = write_face_dataset(
            folder,
            image_count,
            image_count,
            glasses=GLASSES_SHARE,
            progress=part_of(progress, 0.0, 0.3),
        )
        settings, report = settings_for_blinks(image_count), part_of(progress, 0.3, 1.0)
        result = train_ert(read_faces(faces), output, settings, report, training_scores=False)
    record = replace(result.record, details={**result.record.details, "drawn": True})
    write_json(result.metadata_path, record.to_dict())
    return replace(result, record=record)


def kept_starter(cache: Path) -> Path:
    """Return the path of the starter in a cache, whether or not it was trained already."""
    return cache / "starter" / _KEPT


def find_starter(cache: Path, progress: Progress = no_progress) -> Path:
    """Return the starter of a cache; train it if it is not there yet."""
    path = kept_starter(cache)
    if path.is_file():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with locked(path.with_name(".lock")):
        if not path.is_file():
            train_starter(path, progress=progress)
    return path


def settings_for_blinks(faces: int) -> ErtSettings:
    """Return settings for a model that follows the lids, by the number of faces."""
    if faces >= _MANY_FACES:
        return FOR_BLINKS
    return replace(FOR_BLINKS, nu=0.05, tree_depth=4, oversampling_amount=40)
