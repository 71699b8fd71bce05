"""Messages with bodies of entries and shapes that the session determines.

A body is a safetensors file:

==============  =============================================================================
message         entries, all F32; n samples
==============  =============================================================================
step            ``smashed`` (n, ...), ``head`` (n, 2), ``gaze`` (n, 2)
its answer      ``gradient`` (n, ...), ``loss`` (n,), each the mean of the step
forward         ``smashed`` (n, ...); the answer ``features`` (n, ...)
backward        ``gradient`` (n, ...); the answer ``gradient`` (n, ...)
smashed         ``smashed``, ``head``, ``gaze`` as in a step: means over all sites
predict         ``smashed`` (n, ...), ``head`` (n, 2) without a tail; the answer ``found``
==============  =============================================================================

A receiver does not trust a body: it reads no more than the largest size of the message, and every
number must be finite.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from aggregators import errors, formats, models
from aggregators.formats.safetensors_file import parse_safetensors
from site_agent.errors import InvalidInputError
from site_agent.split.plan import SplitPlan

HEADER_BYTES = 4096
"""More than the header of any message takes."""

ROWS_AT_ONCE = 64
"""Samples in a message that is no step."""

Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class BodyShape:
    """The shape of a message's body."""

    entries: Shapes
    """Shape of each entry for one sample."""
    most_rows: int
    """The largest number of samples."""
    fewest_rows: int = 1
    """0 in steps of DP-SGD, which draw each sample by chance."""

    @property
    def most_bytes(self) -> int:
        """The largest size of a body."""
        return HEADER_BYTES + 4 * self.most_rows * sum(
            math.prod(shape) for shape in self.entries.values()
        )


def body_shapes(plan: SplitPlan) -> dict[str, BodyShape]:
    """Return the form of each message that the main server takes, by its name."""
    from site_agent.split.parts import size_of

    size = size_of(plan.found_cut)
    angles = {"head": (2,), "gaze": (2,)}
    rows, fewest = most_rows(plan), 0 if plan.is_private else 1
    smashed = {"smashed": size.smashed}
    predict = smashed if plan.found_cut.tail else {**smashed, "head": (2,)}
    return {
        "step": BodyShape({**smashed, **angles}, rows, fewest),
        "forward": BodyShape(smashed, rows, fewest),
        "backward": BodyShape({"gradient": size.returned}, rows, fewest),
        "smashed": BodyShape({**smashed, **angles}, ROWS_AT_ONCE),
        "predict": BodyShape(predict, ROWS_AT_ONCE),
    }


def answer_shapes(plan: SplitPlan) -> dict[str, BodyShape]:
    """Return the form of each answer that a client takes, by the name of its message."""
    from site_agent.split.parts import size_of

    size = size_of(plan.found_cut)
    rows, fewest = most_rows(plan), 0 if plan.is_private else 1
    width = size.returned if plan.found_cut.tail else (2,)
    return {
        "step": BodyShape({"gradient": size.smashed, "loss": ()}, rows, fewest),
        "forward": BodyShape({"features": size.returned}, rows, fewest),
        "backward": BodyShape({"gradient": size.smashed}, rows, fewest),
        "predict": BodyShape({"found": width}, ROWS_AT_ONCE),
    }


def most_rows(plan: SplitPlan) -> int:
    """Return the largest number of samples in a step."""
    size = plan.training.batch_size
    if not plan.is_private:
        # A last batch of one sample joins the batch before.
        return size + 1
    # Each sample is drawn by chance: beyond this, less often than once in 1e20 steps.
    return size + 10 * math.isqrt(size) + 20


def encode_arrays(arrays: Mapping[str, models.Float32]) -> bytes:
    """Return arrays as a body."""
    tensors = {name: np.ascontiguousarray(values, np.float32) for name, values in arrays.items()}
    infos = {name: models.TensorInfo("F32", values.shape) for name, values in tensors.items()}
    return formats.encode_model(models.StateDict(tensors, infos), "safetensors")


def decode_arrays(body: bytes, shape: BodyShape) -> dict[str, models.Float32]:
    """Return the arrays of a body, by name; all have the same number of rows.

    Raises `InvalidInputError`: another entry, type or shape than expected, no rows or too many, or
    numbers that are not finite.
    """
    try:
        contents = parse_safetensors(body)
    except errors.FormatError as error:
        raise InvalidInputError(f"the body is no safetensors: {error}") from error
    if set(contents.entries) != set(shape.entries):
        raise InvalidInputError(
            f"found entries {', '.join(sorted(contents.entries)) or 'none'}, expected "
            f"{', '.join(sorted(shape.entries))}"
        )
    counts = {entry.info.shape[:1] for entry in contents.entries.values()}
    rows = next(iter(counts))[0] if len(counts) == 1 and () not in counts else -1
    if not shape.fewest_rows <= rows <= shape.most_rows:
        raise InvalidInputError(
            f"found {max(0, rows)} samples, expected {shape.fewest_rows} to {shape.most_rows}, "
            "the same number in each entry"
        )
    arrays: dict[str, models.Float32] = {}
    for name, entry in contents.entries.items():
        expected = (rows, *shape.entries[name])
        if entry.info.dtype != "F32" or tuple(entry.info.shape) != expected:
            raise InvalidInputError(
                f"entry {name}: found {entry.info.dtype} {list(entry.info.shape)}, expected F32 "
                f"{list(expected)}"
            )
        values = np.array(contents.array(name), dtype=np.float32)
        if not np.isfinite(values).all():
            raise InvalidInputError(f"entry {name}: found infinities or NaN")
        arrays[name] = values
    return arrays
