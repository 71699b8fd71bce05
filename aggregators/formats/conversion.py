"""A model as another file of the same kind needs it: nothing of what it computes changes."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from aggregators.errors import ConversionError
from aggregators.formats.fhog_detector import MOST_UPSAMPLING
from aggregators.formats.registry import FORMATS, default_format
from aggregators.models import KIND_WORDS, FhogDetector, ForestEnsemble, Model

DetectorKind = Literal["object_detector", "simple_object_detector"]
"""What dlib calls the two kinds of `.svm` files: that of C++ (Python reads it as
``fhog_object_detector``), and that of Python, which says how often an image is doubled first."""


def convert_model(
    model: Model,
    format_name: str | None = None,
    *,
    detector_kind: DetectorKind | None = None,
    upsampling: int | None = None,
) -> Model:
    """Return a model as a format can hold it.

    Parameters
    ----------
    model : Model
    format_name : str, optional
        A name of `FORMATS`; the model's own where None.
    detector_kind : str, optional
        Of a detector; as it is where None, unless `upsampling` asks for Python's.
    upsampling : int, optional
        Of Python's kind: how often an image is doubled first, 0 to 16; as it is where None, and
        0 where a file of C++ says nothing of it.

    Raises
    ------
    ConversionError
        The format cannot hold the model, or something was asked for that a model of its kind
        does not have.
    """
    name = default_format(model).name if format_name is None else format_name
    if name not in FORMATS:
        raise ConversionError(f"format: found {name!r}, expected one of {', '.join(FORMATS)}")
    if isinstance(model, FhogDetector):
        model = _of_kind(model, detector_kind, upsampling)
    elif detector_kind is not None or upsampling is not None:
        raise ConversionError(
            f"found a {KIND_WORDS[type(model)]}: only detectors are of two kinds and double images"
        )
    if isinstance(model, ForestEnsemble) and len(model.members) == 1:
        # One forest alone is an ordinary landmark model, whatever its weight.
        model = model.members[0]
    if FORMATS[name].holds(model):
        return model
    able = " or ".join(
        " ".join([member.name, *(f"({suffix})" for suffix in member.suffixes)])
        for member in FORMATS.values()
        if member.holds(model)
    )
    if isinstance(model, ForestEnsemble):
        raise ConversionError(
            f"{name} cannot hold {len(model.members)} forests that are run side by side, expected "
            f"{able}; merge the sub-models by wba-cascade to get one forest"
        )
    raise ConversionError(f"{name} cannot hold a {KIND_WORDS[type(model)]}; it fits into {able}")


def _of_kind(
    model: FhogDetector, kind: DetectorKind | None, upsampling: int | None
) -> FhogDetector:
    if kind == "object_detector":
        if upsampling is not None:
            raise ConversionError(
                "an object_detector does not say how often images are doubled; expected "
                "simple_object_detector with an upsampling"
            )
        return replace(model, upsampling=None)
    if kind is None and upsampling is None:
        return model
    doublings = upsampling if upsampling is not None else model.upsampling or 0
    if not 0 <= doublings <= MOST_UPSAMPLING:
        raise ConversionError(f"upsampling: found {doublings}, expected 0 to {MOST_UPSAMPLING}")
    return replace(model, upsampling=doublings)
