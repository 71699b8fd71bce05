"""``poolctl convert``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from cli.frame.addresses import model_file, size_words
from cli.frame.existing_files import (
    place_for_model,
    refuse_inputs,
    require_free,
    words_on_existing,
)
from cli.frame.options import DryRunOption, ForceOption, command, single
from cli.frame.output import Invocation, Reply

if TYPE_CHECKING:
    from aggregators.models import Model

app = single()


@command(
    app,
    "convert",
    examples=[
        "convert merged.svm -o python.svm --detector-kind simple_object_detector --upsample 1",
        "convert found.svm -o cpp.svm --detector-kind object_detector",
        "convert merged.dat -o merged.forest",
        "convert site-a/face-68 -o face.dat",
        "convert merged.forest -o small.forest --format poolctl-forest-half",
    ],
)
def convert(
    invocation: Invocation,
    model: Annotated[str, typer.Argument(metavar="FILE|ADDRESS", help="A model of any format.")],
    *,
    output: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            help="The file to write; its suffix selects the format.",
            show_default=False,
        ),
    ],
    output_format: Annotated[
        str,
        typer.Option(
            "--format", metavar="NAME", help="Format of the output. Default: by its suffix."
        ),
    ] = "",
    detector_kind: Annotated[
        Literal["object_detector", "simple_object_detector"] | None,
        typer.Option(
            help="Detectors: the form for C++ or for Python programs. Default: unchanged."
        ),
    ] = None,
    upsample: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=16,
            help="simple_object_detector: how often images are doubled. Default: unchanged.",
        ),
    ] = None,
    force: ForceOption = False,
    dry_run: DryRunOption = False,
) -> Reply:
    """Convert a model to another format without changing its result.

    Detectors (.svm): C++ programs read an object_detector, and Python's
    dlib.simple_object_detector(FILE) reads only a simple_object_detector (--detector-kind).
    Landmark models: dlib reads .dat; a .forest file has the same content and opens instantly. A
    file of several forests (wba-final) cannot become a .dat.
    """
    from aggregators.formats import read_model, recognise, write_model
    from aggregators.formats.registry import convert_model

    file = model_file(invocation, model)
    require_free(output, force=True)
    refuse_inputs([output], [file.path], "--output", what="the model")
    source = recognise(file.path).name
    with (
        place_for_model(output, force=force) as place,
        invocation.progress(f"convert {model}") as report,
    ):
        content = read_model(file.path)
        name = output_format or _format_of(output, content)
        report(0.5, "convert")
        made = convert_model(
            content,
            name,
            detector_kind=detector_kind,
            upsampling=upsample,
        )
        digest = None if dry_run else write_model(made, place, format_name=name)
    for remark in _remarks(content, made, name):
        invocation.warn(remark)
    data: dict[str, Any] = {
        "input": file.path,
        "input_format": source,
        "output": output,
        "format": name,
        "detector_kind": _kind_of(made),
        "upsampling": getattr(made, "upsampling", None),
        "digest": digest,
        "converted": not dry_run,
    }
    what = " ".join(word for word in (name, data["detector_kind"]) if word)
    if dry_run:
        told = f"would write {output} ({what}){words_on_existing(output, force=force)}"
        return Reply(data, told, [str(output)])
    size = size_words(output.stat().st_size)
    return Reply(data, [f"{output}  ({what}, {size})", f"sha256 {digest}"], [str(output)])


def _format_of(output: Path, content: Model) -> str:
    """Return the format that the ending means; that of the model's kind for any other ending."""
    from aggregators.formats import FORMATS, default_format

    ending = output.suffix.lower()
    named = [name for name, entry in FORMATS.items() if ending and ending in entry.suffixes]
    return named[0] if named else default_format(content).name


def _kind_of(model: Model) -> str | None:
    from aggregators.models import FhogDetector

    if not isinstance(model, FhogDetector):
        return None
    simple = model.upsampling is not None
    return "simple_object_detector" if simple else "object_detector"


def _remarks(content: Model, made: Model, format_name: str) -> list[str]:
    """Say what a reader of the new file will do otherwise."""
    from aggregators.formats import FORMATS
    from aggregators.models import FhogDetector

    remarks = []
    if isinstance(content, FhogDetector) and isinstance(made, FhogDetector):
        before, after = content.upsampling or 0, made.upsampling or 0
        if before != after:
            remarks.append(f"images were doubled {before} times first, now {after} times")
    if not FORMATS[format_name].exact:
        remarks.append(f"{format_name} rounds: the model cannot be made again from it exactly")
    return remarks
