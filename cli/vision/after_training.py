"""What all trainings share: what is made sure before them, and what follows them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.frame.errors import UsageError
from cli.frame.existing_files import require_free
from cli.frame.output import Invocation, Reply, TableText
from cli.options.data import read_face_file
from cli.options.versions import NewVersionOptions, model_address

if TYPE_CHECKING:
    from site_agent.datasets import FaceDataset, ReadingOptions
    from site_agent.training import TrainingRecord, TrainingResult

UploadOption = Annotated[
    str | None,
    typer.Option(
        metavar="[SITE/]NAME",
        help="Upload the model with labels and scores, never the images.",
    ),
]


@dataclass(frozen=True)
class Afterwards:
    """What is done with a model once it is trained."""

    test_path: Path | None = None
    test_faces: FaceDataset | None = None
    address: str | None = None


def prepared(
    invocation: Invocation, test: Path | None, reading: ReadingOptions | None, upload: str | None
) -> Afterwards:
    """Find out before hours of training whether what comes afterwards can be done."""
    faces = None if test is None else read_face_file(test, reading)
    if faces is not None and not any(True for _ in faces.boxes()):
        raise UsageError(f"--test {test}: has no face boxes")
    address = None
    if upload is not None:
        from site_agent.errors import ForbiddenError

        with invocation.pool() as pool:
            address = model_address(pool, upload)
            if pool.whoami().role == "viewer":
                raise ForbiddenError(f"--upload {upload}: a viewer's token cannot upload")
    return Afterwards(test, faces, address)


def require_same_training(
    target: Path, settings: Mapping[str, Any], digest: Callable[[], str], *, force: bool
) -> None:
    """Refuse before hours of training to replace what was not made by the same training."""
    from site_agent.training import read_training_metadata

    record = None if force or not target.is_file() else read_training_metadata(target)
    if record is not None and record["settings"] == settings:
        force = record["data"]["digest"] == digest()
    require_free(target, force=force)


def uploaded(
    invocation: Invocation,
    result: TrainingResult,
    after: Afterwards,
    data: dict[str, Any],
    text: Sequence[str | TableText],
) -> Reply:
    """Upload a trained model where that was asked for, and return what the command says."""
    identifiers = [str(result.model_path)]
    if after.address is None:
        return Reply(data, text, identifiers)
    from cli.transfers.upload import upload

    # Should the pool not take it, the training is not lost.
    invocation.note(f"trained {result.model_path}")
    sent = upload(invocation, result.model_path, name=after.address, version=NewVersionOptions())
    assert sent is not None
    return Reply(
        data | {"upload": sent.data},
        [*text, str(sent.text)],
        [*identifiers, *sent.identifiers],
    )


def plain_record(record: TrainingRecord) -> dict[str, Any]:
    """Return what the metadata file says, without a mark of each image."""
    plain = record.to_dict()
    return plain | {"data": {k: v for k, v in plain["data"].items() if k != "image_marks"}}
