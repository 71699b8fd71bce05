"""The file of a site's contribution: a safetensors container.

======================  ================================================================
entry                   content
======================  ================================================================
metadata ``format``     ``poolctl-leaf-contribution``
metadata ``version``    ``1``
metadata ``base``       `forest_digest` of the base before thinning
metadata ``settings``   JSON: `RefitSettings` without the seed
``changes``             F32 (leaves, parts, 2), of all levels
``counts``              U32 (leaves,)
======================  ================================================================

It holds sums over samples and their counts, and no images. As a leaf that very few faces reach
reveals something about them, it stays at the site (`RefitSettings.min_faces`). A face has one
sample per starting shape.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationError

from aggregators.errors import FormatError, first_problem
from aggregators.formats import dlib_stream, registry, safetensors_file
from aggregators.methods.contract import MethodOptions, check_options, no_progress
from aggregators.methods.joined_cascades import join_cascades
from aggregators.models import Float32, LeafContribution, ShapePredictor, TensorInfo, UInt32
from aggregators.whole_file import whole_file

_CORRECTIONS_PER_LEVEL = 50.0
_LARGEST_AUTOMATIC_NU = 0.3


class RecordedSettings(MethodOptions):
    """Settings as contributions hold them, also those of earlier versions."""

    mode: Literal["one-shot", "level-by-level"] = "one-shot"
    """Sites fit all levels; earlier ones could exchange contributions after every level."""
    level: int | None = Field(default=None, ge=1)
    starts: int = Field(default=20, ge=1, le=10_000, description="Starting shapes for each face.")
    nu: float | None = Field(
        default=None,
        gt=0,
        le=1,
        description="Part of the mean residual by which each tree corrects its leaves; by default "
        "chosen by the number of trees (0.1 for 500 trees a level, less for more).",
    )
    min_faces: int = Field(
        default=5, ge=1, description="Leaves that fewer faces of a site reach are not sent."
    )
    thin: int | None = Field(
        default=None, ge=1, description="First reduce each level to this number of trees."
    )
    jitter: float = Field(
        default=0.03,
        ge=0,
        le=1,
        description="Largest random shift of the box for each start but the first, in box sizes; "
        "the default is how far the analysis of blinks shifts the boxes of its starts.",
    )
    own_share: float = Field(
        default=0.5,
        ge=0,
        le=1,
        description="Part of its own change by which a site moves its samples.",
    )
    seed: int = Field(default=0, ge=0, lt=2**63, description="Of the starting shapes.")

    def shared(self) -> dict[str, Any]:
        """Return the settings for a contribution: all but the seed."""
        return self.model_dump(mode="json", exclude={"seed"})


class RefitSettings(RecordedSettings):
    """Settings of one site's fit in a round of leaf refinement."""

    mode: Literal["one-shot"] = "one-shot"
    level: None = None

    def resolved(self, forest: ShapePredictor) -> "RefitSettings":
        """Return the settings with `nu` chosen for a (thinned) forest.

        On photographs, a nu of 0.1 was good for 504 trees a level, 0.05 for 1002 and 0.02 for
        3000: about 50 full corrections distributed over the trees of a level.
        """
        if self.nu is not None:
            return self
        most_trees = max(1, int(forest.trees_per_level.max()))
        nu = min(_LARGEST_AUTOMATIC_NU, _CORRECTIONS_PER_LEVEL / most_trees)
        return self.model_copy(update={"nu": max(1e-4, round(nu, 4))})


def refit_settings(**values: Any) -> RefitSettings:
    """Return settings given by name, or raise `OptionError`."""
    return check_options(RefitSettings, values, "leaf-refit")


def thin_base(base: ShapePredictor, thin: int | None) -> ShapePredictor:
    """Return the forest to fit: the base, thinned to `thin` trees a level."""
    if thin is None or thin >= int(base.trees_per_level.max()):
        return base
    return join_cascades([base], [1.0], step=1.0, kept_trees_per_level=thin, progress=no_progress)


CONTRIBUTION_SUFFIX = ".contribution"
LEAF_CONTRIBUTION = "poolctl-leaf-contribution"
_VERSION = "1"
_ROWS_AT_ONCE = 1 << 15


def forest_digest(forest: ShapePredictor) -> str:
    """Return a SHA-256 of a forest's content, which does not depend on the file format.

    Zeros of both signs are equal, as dlib's files store no sign of zero.
    """
    digest = hashlib.sha256(b"poolctl-forest-digest/1")
    for item in fields(forest):
        array = getattr(forest, item.name)
        digest.update(f"{item.name} {array.dtype.str} {array.shape}".encode())
        flat = np.ascontiguousarray(array).reshape(-1)
        for first in range(0, len(flat), 1 << 20):
            part = flat[first : first + (1 << 20)]
            # Adding zero makes negative zeros positive and changes nothing else.
            digest.update((part + part.dtype.type(0)).data)
    return digest.hexdigest()


def encode_contribution(contribution: LeafContribution) -> bytes:
    """Return the bytes of a contribution's file."""
    return b"".join(_parts(contribution))


def write_contribution(contribution: LeafContribution, path: Path | str) -> str:
    """Write a contribution, whole or not at all, and return the SHA-256 of the file."""
    digest = hashlib.sha256()
    with whole_file(Path(path)) as file:
        for part in _parts(contribution):
            digest.update(part)
            file.write(part)
    return digest.hexdigest()


def read_contribution(path: Path | str) -> LeafContribution:
    """Read a contribution file; large arrays are mapped into memory."""
    return registry.decode_file(decode_contribution, path)


def decode_contribution(data: dlib_stream.Buffer) -> LeafContribution:
    """Read the bytes of a contribution; see `read_contribution`."""
    contents = safetensors_file.parse_safetensors(data)
    safetensors_file.require_metadata(contents.metadata, "format", LEAF_CONTRIBUTION)
    safetensors_file.require_metadata(contents.metadata, "version", _VERSION)
    if set(contents.entries) != {"changes", "counts"}:
        raise safetensors_file.header_error(
            "entries", ", ".join(sorted(contents.entries))[:200], "changes and counts"
        )
    changes = _entry(contents, "changes", "F32")
    counts = _entry(contents, "counts", "U32")
    if changes.ndim != 3 or changes.shape[2] != 2 or 0 in changes.shape:
        raise safetensors_file.header_error(
            "changes", f"shape {changes.shape}", "(leaves, parts, 2)"
        )
    if counts.shape != changes.shape[:1]:
        raise safetensors_file.header_error(
            "counts", f"shape {counts.shape}", f"({changes.shape[0]},)"
        )
    contribution = LeafContribution(
        changes=cast("Float32", changes),
        counts=cast("UInt32", counts),
        base_digest=safetensors_file.digest_in_metadata(contents.metadata, "base"),
        settings=_parse_settings(contents.metadata.get("settings", "")),
    )
    problem = _find_problem(contribution)
    if problem is not None:
        start = contents.entries["changes"].start
        raise FormatError("changes", start, problem[0], problem[1])
    return contribution


def _find_problem(contribution: LeafContribution) -> tuple[str, str] | None:
    """Return the first problem with the numbers (found, expected), or None."""
    for first in range(0, len(contribution.counts), _ROWS_AT_ONCE):
        rows = slice(first, first + _ROWS_AT_ONCE)
        changes = contribution.changes[rows]
        if not np.isfinite(changes).all():
            return "an infinite number or NaN", "finite numbers"
        if changes[contribution.counts[rows] == 0].any():
            return "a change of a leaf without samples", "zero"
    return None


def _parts(contribution: LeafContribution) -> "Iterator[bytes | memoryview]":
    """Yield the header, the changes and the counts of a contribution's file."""
    shape = contribution.changes.shape
    header, _ = safetensors_file.lay_out(
        {"changes": TensorInfo("F32", tuple(shape)), "counts": TensorInfo("U32", (shape[0],))},
        {
            "format": LEAF_CONTRIBUTION,
            "version": _VERSION,
            "base": contribution.base_digest,
            "settings": json.dumps(
                dict(contribution.settings), sort_keys=True, separators=(",", ":")
            ),
        },
    )
    yield header
    for array, kind in ((contribution.changes, np.float32), (contribution.counts, np.uint32)):
        values = np.ascontiguousarray(array, dtype=kind)
        yield dlib_stream.view_bytes(values.reshape(-1).view(np.uint8))


def _entry(contents: safetensors_file.Contents, name: str, dtype: str) -> NDArray[np.generic]:
    actual = contents.entries[name].info.dtype
    if actual != dtype:
        raise safetensors_file.header_error(name, f"type {actual}", dtype)
    return contents.array(name)


def _parse_settings(text: str) -> dict[str, Any]:
    try:
        settings = RecordedSettings.model_validate_json(text)
    except ValidationError as error:
        problem = first_problem(error)
        raise safetensors_file.header_error("metadata settings", problem, "settings") from error
    return settings.shared()
