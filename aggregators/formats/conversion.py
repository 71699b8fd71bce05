"""Preparing a model for another file format or kind; what it computes does not change."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from aggregators.errors import ConversionError
from aggregators.formats.fhog_detector import MOST_UPSAMPLING
from aggregators.formats.registry import default_format, format_for
from aggregators.models import KIND_WORDS, FhogDetector, ForestEnsemble, Model

DetectorKind = Literal["object_detector", "simple_object_detector"]
"""The two kinds of `.svm` files: that of C++ (``fhog_object_detector`` in Python), and that of
Python, which also stores how often an image is doubled first."""


def convert_model(
    model: Model,
    format_name: str | None = None,
    *,
    detector_kind: DetectorKind | None = None,
    upsampling: int | None = None,
) -> Model:
    """Return a model in the form that a format can hold.

    Parameters
    ----------
    format_name : str, optional
        A name of `FORMATS`; by default the model's own.
    detector_kind : str, optional
        For detectors. Unchanged by default; Python's kind when `upsampling` is given.
    upsampling : int, optional
        For Python's kind: how often an image is doubled first, 0 to 16. Unchanged by default;
        0 for a file of C++.

    Raises
    ------
    ConversionError
        The format cannot hold the model, or the model does not have such an option.
    """
    name = default_format(model).name if format_name is None else format_name
    if isinstance(model, FhogDetector):
        model = _of_kind(model, detector_kind, upsampling)
    elif detector_kind is not None or upsampling is not None:
        raise ConversionError(
            f"only detectors have a kind and an upsampling; found a {KIND_WORDS[type(model)]}"
        )
    if isinstance(model, ForestEnsemble) and len(model.members) == 1:
        # One forest alone is an ordinary landmark model, whatever its weight.
        model = model.members[0]
    try:
        format_for(model, name)
    except ConversionError as error:
        if isinstance(model, ForestEnsemble):
            raise ConversionError(f"{error}, or merge by wba-cascade to get one forest") from None
        raise
    return model


def _of_kind(
    model: FhogDetector, kind: DetectorKind | None, upsampling: int | None
) -> FhogDetector:
    if kind == "object_detector":
        if upsampling is not None:
            raise ConversionError(
                "an object_detector does not store an upsampling; use simple_object_detector"
            )
        return replace(model, upsampling=None)
    if kind is None and upsampling is None:
        return model
    doublings = upsampling if upsampling is not None else model.upsampling or 0
    if not 0 <= doublings <= MOST_UPSAMPLING:
        raise ConversionError(f"upsampling: found {doublings}, expected 0 to {MOST_UPSAMPLING}")
    return replace(model, upsampling=doublings)
