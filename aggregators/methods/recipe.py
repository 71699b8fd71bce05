"""Recipes: the inputs, the method and the output of a merge.

A recipe is canonical JSON (keys sorted, two spaces, UTF-8, a final newline), stored next to the
merged model as ``<model file>.recipe.json``::

    {"schema": "poolctl-recipe/1",
     "method":  {"name": "wba-cascade", "version": 1},
     "options": {"step": 1.0, "thin": null},
     "inputs":  [{"digest": "9f86...", "weight": 1.0, "address": null, "file_name": "a.dat"}],
     "output":  {"digest": "60ab...", "format": "dlib-shape-predictor"}}

Inputs are in the order given, as parts that cannot be averaged come from the first.

The output of a server optimiser (``fedadam`` ...) also has ``"state"``, the digest of the state
that the next round takes as an input.

Only the recipe of a merge repeated without some input names the replaced file and the inputs left
out::

    {...,
     "successor_of": {"digest": "60ab...",
                      "without": [{"digest": "9f86...", "address": null, "file_name": "a.dat"}]}}
"""

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

from aggregators.errors import RecipeError, first_problem
from aggregators.whole_file import write_whole

RECIPE_SUFFIX = ".recipe.json"
_LARGEST_RECIPE_BYTES = 16 * 1024 * 1024

Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class _Part(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, populate_by_name=True
    )


class RecipeMethod(_Part):
    """The method of a merge."""

    name: str = Field(min_length=1, max_length=64)
    version: int = Field(ge=1)


class RecipeInput(_Part):
    """One sub-model of a merge; the address and file name are for messages."""

    digest: Digest = Field(description="SHA-256 of the file.")
    weight: float = Field(default=1.0, gt=0)
    address: str | None = Field(default=None, max_length=512, description="In a pool.")
    file_name: str | None = Field(default=None, max_length=512, description="Without folders.")


class RecipeOutput(_Part):
    """The merged file, and that of the optimiser's state, if the method has one."""

    digest: Digest = Field(description="SHA-256 of the file.")
    format: str = Field(min_length=1, max_length=64)
    state: Digest | None = Field(default=None, description="SHA-256 of the state's file.")

    @model_serializer(mode="wrap")
    def _plain(self, serialise: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # Most methods have no state; their recipes omit the field.
        content: dict[str, Any] = serialise(self)
        if self.state is None:
            content.pop("state", None)
        return content


class LeftOut(_Part):
    """A model that a repeated merge leaves out: an input, or an input of an input."""

    digest: Digest = Field(description="SHA-256 of the file.")
    address: str | None = Field(default=None, max_length=512, description="In a pool.")
    file_name: str | None = Field(default=None, max_length=512, description="Without folders.")


class Succession(_Part):
    """The merged model that another one replaces."""

    digest: Digest = Field(description="SHA-256 of the replaced file.")
    without: tuple[LeftOut, ...] = Field(min_length=1, max_length=100_000)


class Recipe(_Part):
    """Everything needed to repeat a merge, bit for bit."""

    schema_name: Literal["poolctl-recipe/1"] = Field(default="poolctl-recipe/1", alias="schema")
    method: RecipeMethod
    options: dict[str, Any] = Field(default_factory=dict)
    inputs: tuple[RecipeInput, ...] = Field(min_length=1, max_length=100_000)
    output: RecipeOutput | None = Field(default=None, description="Absent for a merge in memory.")
    successor_of: Succession | None = Field(
        default=None, description="For a merge repeated without some inputs."
    )

    @model_serializer(mode="wrap")
    def _plain(self, serialise: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # Ordinary recipes omit the field.
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
        """Digests of the distinct inputs, in their order."""
        return tuple(dict.fromkeys(entry.digest for entry in self.inputs))


def parse_recipe(content: bytes | str, *, subject: str = "recipe") -> Recipe:
    """Read a recipe from JSON.

    Raises `RecipeError`: names the first field that is wrong.
    """
    if len(content) > _LARGEST_RECIPE_BYTES:
        raise RecipeError(
            f"{subject}: found {len(content)} bytes, expected at most {_LARGEST_RECIPE_BYTES}"
        )
    try:
        return Recipe.model_validate_json(content)
    except ValidationError as error:
        raise RecipeError(f"{subject} is not a poolctl recipe: {first_problem(error)}") from error


def read_recipe(path: Path) -> Recipe:
    """Read a recipe file."""
    try:
        with path.open("rb") as file:
            # One byte more than allowed shows that a file is too large, without reading it whole.
            content = file.read(_LARGEST_RECIPE_BYTES + 1)
    except OSError as error:
        raise RecipeError(f"cannot read the recipe {path}: {error.strerror}") from error
    return parse_recipe(content, subject=str(path))


def recipe_path(model_path: Path) -> Path:
    """Return the path of a model file's recipe."""
    return model_path.with_name(model_path.name + RECIPE_SUFFIX)


def write_recipe(recipe: Recipe, path: Path) -> None:
    """Write a recipe file, whole or not at all."""
    write_whole(path, recipe.to_json())
