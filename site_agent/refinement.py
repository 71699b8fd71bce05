"""Refinement with all sites on one machine, each seeing only its own faces.

Everything that sites would send goes through contribution files here, too, so that the result is
that of the same rounds through a pool, bit for bit.
"""

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from aggregators.errors import IncompatibleModelsError
from aggregators.formats import file_digest, read_model, write_model
from aggregators.methods import merging, refitting
from aggregators.methods import recipe as recipes
from aggregators.methods.leaf_refit import LeafRefit
from aggregators.methods.sub_models import collect_sub_models
from aggregators.models import MergeInput, ShapePredictor
from aggregators.predictors import to_grey
from site_agent.datasets.part_order import find_model_parts
from site_agent.datasets.records import (
    AnnotatedImage,
    FaceBox,
    FaceDataset,
    dataset_digest,
    part_names,
    parts_array,
)
from site_agent.errors import TrainingDataError
from site_agent.faces.models import in_threads
from site_agent.pictures.images import read_image
from site_agent.work import Progress


@dataclass(frozen=True)
class RefinementPlan:
    """The plan of a refinement."""

    settings: refitting.RefitSettings
    """Each round adds one to the seed, so that it draws other starting shapes."""
    rounds: int = 1
    threads: int = 0
    """0: as many as the machine has processors; the result is the same."""
    keep_in: Path | None = None
    """Where contributions stay; without it they are deleted, and the recipe cannot be repeated."""

    def settings_of(self, number: int) -> refitting.RefitSettings:
        """Return the settings of a round, counted from 1."""
        changes: dict[str, object] = {"seed": self.settings.seed + number - 1}
        if number > 1:
            # The first round has thinned the model already.
            changes["thin"] = None
        return self.settings.model_copy(update=changes)


@dataclass(frozen=True, eq=False)
class RefinedModel:
    """The result of a refinement."""

    model: ShapePredictor
    recipe: recipes.Recipe
    digest: str
    contributions: tuple[Path, ...]


_Sent = tuple[Path, str]
"""A contribution, and its digest."""


def read_base(path: Path | str) -> ShapePredictor:
    """Read the base model for refinement."""
    model = read_model(path)
    if isinstance(model, ShapePredictor):
        return model
    raise IncompatibleModelsError(
        "kind",
        "one landmark model",
        type(model).__name__,
        first_name="what can be refined",
        other_name=Path(path).name,
        hint="merge sub-models with: poolctl merge wba-cascade ... --option step=1.1",
    )


def refine_sites(
    base_path: Path | str,
    sites: "Mapping[str, LoadedSite]",
    output: Path | str,
    plan: RefinementPlan,
    *,
    base: ShapePredictor | None = None,
    progress: Progress | None = None,
) -> RefinedModel:
    """Refine a model in rounds and write it with its recipe; `sites` by name, at least one."""
    base_path, output = Path(base_path), Path(output)
    method = LeafRefit()
    format_name = merging.choose_output_format(method, output, None)
    merging.require_place_for(output)
    merging.refuse_overwriting_inputs(output, [base_path])
    current = read_base(base_path) if base is None else base
    inputs = [recipes.RecipeInput(digest=file_digest(base_path), file_name=base_path.name)]
    kept: list[Path] = []
    for number in range(1, plan.rounds + 1):
        report = _report_round(progress, number, plan.rounds)
        with _contribution_folder(plan.keep_in, output.parent) as folder:
            sent = _contribute(current, sites, plan, number, folder, report=report)
            current = _combine(current, sent)
        inputs += [recipes.RecipeInput(digest=digest, file_name=path.name) for path, digest in sent]
        kept += [path for path, _ in sent if plan.keep_in is not None]
    digest = write_model(current, output, format_name=format_name)
    recipe = recipes.Recipe(
        method=recipes.RecipeMethod(name=method.name, version=method.version),
        inputs=tuple(inputs),
        output=recipes.RecipeOutput(digest=digest, format=format_name),
    )
    recipes.write_recipe(recipe, recipes.recipe_path(output))
    return RefinedModel(current, recipe, digest, tuple(kept))


def _contribute(
    base: ShapePredictor,
    sites: "Mapping[str, LoadedSite]",
    plan: RefinementPlan,
    number: int,
    folder: Path,
    *,
    report: Progress,
) -> list[_Sent]:
    """Write each site's contribution to a round, counted from 1, into a folder."""
    settings = plan.settings_of(number)
    sent = []
    for place, (name, site) in enumerate(sites.items()):

        def show(fraction: float, text: str, at: int = place, name: str = name) -> None:
            report((at + fraction) / len(sites), f"{name}: {text}")

        contribution = refitting.contribute(
            base, site.faces, settings, threads=plan.threads, progress=show
        )
        path = folder / f"{name}.round-{number}{refitting.CONTRIBUTION_SUFFIX}"
        sent.append((path, refitting.write_contribution(contribution, path)))
    return sent


def _combine(base: ShapePredictor, sent: Sequence[_Sent]) -> ShapePredictor:
    inputs: list[MergeInput] = [base, *(refitting.read_contribution(path) for path, _ in sent)]
    names = ["the base", *(path.name for path, _ in sent)]
    # The base's own digest orders no sums.
    digests = ["", *(digest for _, digest in sent)]
    combined = LeafRefit().combine(
        collect_sub_models(inputs, digests, names), LeafRefit().options_type(), lambda *_: None
    )
    assert isinstance(combined.model, ShapePredictor)
    return combined.model


@contextmanager
def _contribution_folder(keep_in: Path | None, beside: Path) -> Iterator[Path]:
    if keep_in is not None:
        keep_in.mkdir(parents=True, exist_ok=True)
        yield keep_in
        return
    with tempfile.TemporaryDirectory(prefix=".refine-", dir=beside) as folder:
        yield Path(folder)


def _report_round(progress: Progress | None, number: int, rounds: int) -> Progress:
    """Return a report for one round of several."""

    def report(fraction: float | None, text: str) -> None:
        if progress is not None:
            label = f"round {number} of {rounds}, {text}" if rounds > 1 else text
            progress((number - 1 + (fraction or 0.0)) / rounds, label)

    return report


UInt8 = NDArray[np.uint8]
Float64 = NDArray[np.float64]
# As in landmark training: farther from the box than this, in box sizes, everything is black.
CROP_MARGIN = 1.0
_FEWEST_FACES = 2
_MOST_THREADS = 8


@dataclass(frozen=True, eq=False)
class LoadedSite:
    """A site's faces, with the digest of the data set and the images left out."""

    faces: refitting.SiteFaces
    dataset_digest: str
    left_out: tuple[tuple[int, str], ...]


def load_site(
    dataset: FaceDataset,
    part_count: int,
    *,
    parts: Sequence[str] = (),
    initial_shape: NDArray[np.floating] | None = None,
    margin: float = CROP_MARGIN,
    progress: Progress | None = None,
) -> LoadedSite:
    """Read the grey crops around all faces that have every landmark.

    Boxes marked `ignore` are left out. `parts`: the model's landmarks, as
    `site_agent.datasets.landmark_schemes.expand_parts` takes them; where empty all of the data
    set's, or those that the model's mean shape shows. `margin`: how far beyond its box a face's
    image is kept, in box sizes.
    """
    shape = np.zeros((part_count, 2)) if initial_shape is None else initial_shape
    names = _model_parts(dataset, shape, parts)
    complete: list[tuple[AnnotatedImage, list[FaceBox]]] = []
    left_out: list[tuple[int, str]] = []
    for image in dataset.images:
        boxes = []
        for box in image.boxes:
            missing = [name for name in names if name not in box.parts]
            if missing and not box.ignore:
                text = f"a face of {image.path.name} lacks {len(missing)} of {len(names)} landmarks"
                left_out.append((box.line, text))
            elif not box.ignore:
                boxes.append(box)
        if boxes:
            complete.append((image, boxes))
    count = sum(len(boxes) for _, boxes in complete)
    if count < _FEWEST_FACES:
        problem = f"has {count} faces with all {len(names)} landmarks, {_FEWEST_FACES} are needed"
        raise TrainingDataError(dataset.path, [(0, problem), *left_out])
    crops: list[tuple[UInt8, Float64, Float64]] = []
    threads = min(_MOST_THREADS, os.cpu_count() or 1)
    loaded = in_threads(lambda item: _crops(dataset, *item, names, margin), complete, threads)
    for number, found_crops in enumerate(loaded, start=1):
        crops.extend(found_crops)
        if progress:
            progress(number / len(complete), f"image {number} of {len(complete)}")
    faces = refitting.SiteFaces.from_arrays(
        [pixels for pixels, _, _ in crops],
        np.stack([corners for _, corners, _ in crops]),
        np.stack([points for _, _, points in crops]),
    )
    return LoadedSite(faces, dataset_digest(dataset), tuple(left_out))


def _model_parts(
    dataset: FaceDataset, initial_shape: NDArray[np.floating], parts: Sequence[str]
) -> tuple[str, ...]:
    known = part_names(dataset)
    names, unknown = find_model_parts(known, initial_shape, parts)
    if unknown:
        raise TrainingDataError(dataset.path, f"has no landmarks named {', '.join(unknown[:6])}")
    if len(names) != len(initial_shape):
        problem = f"has {len(names) or len(known)} landmarks, the model {len(initial_shape)}"
        raise TrainingDataError(
            dataset.path,
            problem,
            hint="refine with faces of the model's scheme, or name the model's landmarks "
            "(parts, for example eyes or 36-47)",
        )
    return names


def _crops(
    dataset: FaceDataset,
    image: AnnotatedImage,
    boxes: Sequence[FaceBox],
    names: Sequence[str],
    margin: float,
) -> list[tuple[UInt8, Float64, Float64]]:
    """Return each face's crop with its box and landmarks in the crop's pixels."""
    grey = to_grey(read_image(image.path, apply_orientation=False))
    rows, columns = grey.shape
    crops = []
    for box in boxes:
        wide, high = margin * box.width, margin * box.height
        left, top = max(0, int(box.left - wide)), max(0, int(box.top - high))
        right = min(columns, int(np.ceil(box.right + 1 + wide)))
        bottom = min(rows, int(np.ceil(box.bottom + 1 + high)))
        if right <= left or bottom <= top:
            text = f"a box of {image.path.name} lies outside the image ({columns} x {rows} px)"
            raise TrainingDataError(dataset.path, [(box.line, text)])
        if box.width < 2 or box.height < 2:
            text = f"a box of {image.path.name} is {box.width} x {box.height} px, too small"
            raise TrainingDataError(dataset.path, [(box.line, text)])
        offset = np.array([left, top], dtype=np.float64)
        crops.append(
            (
                np.ascontiguousarray(grey[top:bottom, left:right]),
                np.array(box.corners, dtype=np.float64) - np.tile(offset, 2),
                parts_array(box, names) - offset,
            )
        )
    return crops
