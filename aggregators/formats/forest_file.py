"""The project's own file for landmark models: a safetensors container of plain arrays.

It opens in milliseconds, as nothing must be decoded, and can hold a `ForestEnsemble`.

======================  ================================================================
entry                   content
======================  ================================================================
metadata ``format``     ``poolctl-forest``
metadata ``version``    ``1``
metadata ``content``    ``predictor`` or ``ensemble``
metadata ``leaves``     ``F32`` or ``F16``
``K/initial_shape`` ..  the arrays of `ShapePredictor` for each member K = 0, 1 ...
``weights``             F64 (members,); only in an ensemble
======================  ================================================================
"""

from collections.abc import Iterator
from dataclasses import fields
from typing import ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from aggregators.errors import ConversionError, FormatError
from aggregators.formats.contract import ModelFormat
from aggregators.formats.dlib_stream import Buffer
from aggregators.formats.safetensors_file import (
    NUMPY_TYPES,
    Contents,
    header_error,
    lay_out,
    parse_safetensors,
    recognises_safetensors,
)
from aggregators.formats.shape_predictor import (
    FIELD_TYPES,
    find_forest_problem,
    find_number_problem,
)
from aggregators.models import Float32, Float64, ForestEnsemble, ShapePredictor, TensorInfo

VERSION = "1"
FIELDS = tuple(item.name for item in fields(ShapePredictor))
_STORED_TYPES = {
    field: next(name for name, kind in NUMPY_TYPES.items() if kind is FIELD_TYPES[field])
    for field in FIELDS
}


class ForestFileFormat(ModelFormat[ShapePredictor | ForestEnsemble]):
    """The entry in `FORMATS`."""

    name = "poolctl-forest"
    suffixes: ClassVar[tuple[str, ...]] = (".forest",)
    summary = "landmark model or WBA ensemble (poolctl forest file)"
    model_types = (ShapePredictor, ForestEnsemble)
    leaf_type = "F32"

    def recognises(self, head: bytes) -> bool:
        return (
            recognises_safetensors(head)
            and b'"format":"poolctl-forest"' in head
            # Metadata come first in the header, so the mark is among the bytes that are looked at.
            and (b'"leaves":"F16"' in head) == (self.leaf_type == "F16")
        )

    def decode(self, data: Buffer) -> ShapePredictor | ForestEnsemble:
        """Read the bytes of a forest file.

        Arrays are views into `data`; leaves of type F16 become float32 copies.
        """
        contents = parse_safetensors(data)
        metadata = contents.metadata
        _require(metadata.get("format"), ("poolctl-forest",), "metadata format")
        _require(metadata.get("version"), (VERSION,), "metadata version")
        content = _require(metadata.get("content"), ("predictor", "ensemble"), "metadata content")
        leaf_type = _require(metadata.get("leaves"), ("F32", "F16"), "metadata leaves")
        # The number of members is not stored, as it follows from the entries; the set is compared
        # with the expected one below, so a file cannot claim members that it does not have.
        extra = 1 if content == "ensemble" else 0
        member_count = max(1, (len(contents.entries) - extra) // len(FIELDS))
        names = {f"{k}/{name}" for k in range(member_count) for name in FIELDS}
        if extra:
            names.add("weights")
        elif member_count > 1:
            raise header_error("number of members", str(member_count), "1 in a predictor's file")
        odd = sorted(names ^ set(contents.entries))
        if odd:
            state = "missing" if odd[0] in names else "unknown"
            raise header_error("entries", f"{odd[0]!r} {state}", f"those of {member_count} forests")
        members = tuple(_decode_member(contents, k, leaf_type) for k in range(member_count))
        if not extra:
            return members[0]
        return _decode_ensemble(contents, members)

    def pieces(self, model: ShapePredictor | ForestEnsemble) -> Iterator[Buffer]:
        members = model.members if isinstance(model, ForestEnsemble) else (model,)
        if isinstance(model, ForestEnsemble):
            ensemble_problem = _find_ensemble_problem(model)
            if ensemble_problem:
                actual, expected = ensemble_problem
                raise ConversionError(f"ensemble: found {actual}, expected {expected}")
        for number, member in enumerate(members):
            problem = find_forest_problem(member) or find_number_problem(member)
            if problem is not None:
                raise ConversionError(f"forest {number}, {problem}")
        arrays: dict[str, NDArray[np.generic]] = {}
        infos: dict[str, TensorInfo] = {}
        for number, member in enumerate(members):
            for name in FIELDS:
                array = getattr(member, name)
                stored = self.leaf_type if name == "leaves" else _STORED_TYPES[name]
                arrays[f"{number}/{name}"] = array
                infos[f"{number}/{name}"] = TensorInfo(stored, tuple(array.shape))
        if isinstance(model, ForestEnsemble):
            arrays["weights"] = np.asarray(model.weights, dtype=np.float64)
            infos["weights"] = TensorInfo("F64", model.weights.shape)
        header, names = lay_out(
            infos,
            {
                "format": "poolctl-forest",
                "version": VERSION,
                "content": "ensemble" if isinstance(model, ForestEnsemble) else "predictor",
                "leaves": self.leaf_type,
            },
        )
        return _encode_laid_out(header, [(infos[name], arrays[name]) for name in names])


class HalfForestFileFormat(ForestFileFormat):
    """The same at half the size, for models that are run and not merged again.

    Leaves are rounded to 11 bits, an error of about a millionth of a face's width.
    """

    name = "poolctl-forest-half"
    suffixes = ()
    summary = "poolctl forest file with leaves in half precision"
    exact = False
    leaf_type = "F16"


def _decode_member(contents: Contents, number: int, leaf_type: str) -> ShapePredictor:
    arrays: dict[str, NDArray[np.generic]] = {}
    for name in FIELDS:
        entry = contents.entries[f"{number}/{name}"]
        stored = leaf_type if name == "leaves" else _STORED_TYPES[name]
        _require(entry.info.dtype, (stored,), f"type of {number}/{name}", entry.start)
        dimensions = {"leaves": 3, "initial_shape": 2, "deltas": 2}.get(name, 1)
        if len(entry.info.shape) != dimensions:
            raise FormatError(
                f"{number}/{name}",
                entry.start,
                f"shape {entry.info.shape}",
                f"{dimensions} dimensions",
            )
        arrays[name] = contents.array(f"{number}/{name}")
    # Predictors and methods work in float32: half precision is a form of storage alone.
    if leaf_type == "F16":
        arrays["leaves"] = arrays["leaves"].astype(np.float32)
    # The types were compared with _STORED_TYPES above.
    model = ShapePredictor(**arrays)  # type: ignore[arg-type]
    problem = find_forest_problem(model) or find_number_problem(model)
    if problem is not None:
        name = problem.field.split(" ", 1)[0]
        raise FormatError(
            f"{problem.field} of forest {number}",
            contents.entries[f"{number}/{name}"].start,
            problem.actual,
            problem.expected,
        )
    return model


def _decode_ensemble(contents: Contents, members: tuple[ShapePredictor, ...]) -> ForestEnsemble:
    entry = contents.entries["weights"]
    _require(entry.info.dtype, ("F64",), "type of weights", entry.start)
    ensemble = ForestEnsemble(members, cast("Float64", contents.array("weights")))
    problem = _find_ensemble_problem(ensemble)
    if problem:
        raise FormatError("ensemble", entry.start, problem[0], problem[1])
    return ensemble


def _find_ensemble_problem(ensemble: ForestEnsemble) -> tuple[str, str] | None:
    weights = ensemble.weights
    if not ensemble.members:
        return "no forests", "at least one"
    if weights.shape != (len(ensemble.members),):
        return f"weights of shape {weights.shape}", f"({len(ensemble.members)},)"
    if not (np.isfinite(weights).all() and (weights > 0).all()):
        return "weights that are not finite and positive", "finite and positive weights"
    # All members start from one shape (`wba-final` re-anchors them), which predictors rely on.
    first = ensemble.members[0].initial_shape
    for number, member in enumerate(ensemble.members):
        if not np.array_equal(member.initial_shape, first):
            return f"another initial shape in forest {number}", "that of forest 0"
    return None


def _require(value: str | None, choices: tuple[str, ...], what: str, offset: int = 8) -> str:
    if value not in choices or value is None:
        raise FormatError(what, offset, str(value)[:80], " or ".join(choices))
    return value


def _encode_laid_out(
    header: bytes, entries: list[tuple[TensorInfo, NDArray[np.generic]]]
) -> Iterator[Buffer]:
    yield header
    for info, array in entries:
        stored = _to_half(cast("Float32", array)) if info.dtype == "F16" else array
        yield np.ascontiguousarray(stored).reshape(-1).view(np.uint8)


def _to_half(leaves: Float32) -> NDArray[np.float16]:
    with np.errstate(over="ignore"):
        halves = leaves.astype(np.float16)
    if not np.isfinite(halves).all():
        raise ConversionError(
            "leaves: found a value above 65504, the largest in half precision; "
            "write the model as poolctl-forest (float32)"
        )
    return halves
