"""Recipes: what was merged, how, and which bytes came out.

A recipe is JSON in one canonical form (keys sorted, two spaces, UTF-8, a final newline), kept
beside the merged model as ``<model file>.recipe.json``::

    {"schema": "poolctl-recipe/1",
     "method":  {"name": "wba-cascade", "version": 1},
     "options": {"step": 1.0, "thin": null},
     "inputs":  [{"digest": "9f86...", "weight": 1.0, "address": null, "file_name": "a.dat"}],
     "output":  {"digest": "60ab...", "format": "dlib-shape-predictor"}}

Inputs stand in the order in which they were given: the first decides what cannot be averaged.

A merge that was made again without something names the file that it replaces and what was left
out; all other recipes have no such field::

    {...,
     "successor_of": {"digest": "60ab...",
                      "without": [{"digest": "9f86...", "address": null, "file_name": "a.dat"}]}}
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    StringConstraints,
    ValidationError,
    model_serializer,
)

from aggregators.errors import RecipeError
from aggregators.whole_file import write_whole

RECIPE_SUFFIX = ".recipe.json"
_LARGEST_RECIPE_BYTES = 16 * 1024 * 1024

Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class _Part(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, populate_by_name=True
    )


class RecipeMethod(_Part):
    """Which arithmetic."""

    name: str = Field(min_length=1, max_length=64)
    version: int = Field(ge=1)


class RecipeInput(_Part):
    """One sub-model: its bytes and its weight, and where it came from as far as is known."""

    digest: Digest = Field(description="SHA-256 of the file.")
    weight: float = Field(default=1.0, gt=0)
    address: str | None = Field(default=None, max_length=512, description="In a pool.")
    file_name: str | None = Field(default=None, max_length=512, description="Without folders.")


class RecipeOutput(_Part):
    """The bytes that came out."""

    digest: Digest = Field(description="SHA-256 of the file.")
    format: str = Field(min_length=1, max_length=64)


class LeftOut(_Part):
    """A model that a merge was made again without: one of its inputs, or something in those."""

    digest: Digest = Field(description="SHA-256 of the file.")
    address: str | None = Field(default=None, max_length=512, description="In a pool.")
    file_name: str | None = Field(default=None, max_length=512, description="Without folders.")


class Succession(_Part):
    """What a merged model replaces."""

    digest: Digest = Field(description="SHA-256 of the file that it replaces.")
    without: tuple[LeftOut, ...] = Field(min_length=1, max_length=100_000)


class Recipe(_Part):
    """Everything that is needed to make a merged model again, bit for bit."""

    schema_name: Literal["poolctl-recipe/1"] = Field(default="poolctl-recipe/1", alias="schema")
    method: RecipeMethod
    options: dict[str, Any] = Field(default_factory=dict)
    inputs: tuple[RecipeInput, ...] = Field(min_length=1, max_length=100_000)
    output: RecipeOutput | None = Field(
        default=None, description="Absent while the merged model is in memory only."
    )
    successor_of: Succession | None = Field(
        default=None, description="Of a merge that was made again without something."
    )

    @model_serializer(mode="wrap")
    def _plain(self, serialise: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # Recipes of ordinary merges have the same bytes as ever.
        content: dict[str, Any] = serialise(self)
        if self.successor_of is None:
            content.pop("successor_of", None)
        return content

    def to_json(self) -> bytes:
        """Return the canonical JSON: equal recipes give equal bytes."""
        content = self.model_dump(mode="json", by_alias=True)
        text = json.dumps(content, sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False)
        return (text + "\n").encode()

    @property
    def input_digests(self) -> tuple[str, ...]:
        """The distinct inputs, in the order of their first appearance."""
        return tuple(dict.fromkeys(entry.digest for entry in self.inputs))


def parse_recipe(content: bytes | str, *, subject: str = "recipe") -> Recipe:
    """Read a recipe from JSON.

    Raises
    ------
    RecipeError
        Names the first field that is wrong.
    """
    if len(content) > _LARGEST_RECIPE_BYTES:
        raise RecipeError(
            f"{subject}: {len(content)} bytes are too many for a recipe "
            f"(at most {_LARGEST_RECIPE_BYTES})"
        )
    try:
        return Recipe.model_validate_json(content)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_context=False)[0]
        where = ".".join(str(step) for step in problem["loc"])
        raise RecipeError(
            f"{subject} is not a poolctl recipe: "
            + (f"{where}: {problem['msg']}" if where else problem["msg"])
        ) from error


def read_recipe(path: Path) -> Recipe:
    """Read a recipe file.

    Raises
    ------
    RecipeError
        The file cannot be read, or holds no recipe.
    """
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST_RECIPE_BYTES + 1)
    except OSError as error:
        raise RecipeError(f"cannot read the recipe {path}: {error.strerror}") from error
    return parse_recipe(content, subject=str(path))


def recipe_path(model_path: Path) -> Path:
    """Return where the recipe of a model file lies: beside it."""
    return model_path.with_name(model_path.name + RECIPE_SUFFIX)


def write_recipe(recipe: Recipe, path: Path) -> None:
    """Write a recipe file, whole or not at all.

    Raises
    ------
    OSError
        When the folder is missing, full or not writable.
    """
    write_whole(path, recipe.to_json())
