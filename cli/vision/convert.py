"""``poolctl convert``: write a model in another format."""

from pathlib import Path
from typing import Annotated, Any, Literal

from aggregators.formats import FORMATS, default_format, read_model, recognise, write_model
from aggregators.formats.registry import convert_model
from aggregators.models import FhogDetector, Model
from cli.frame import options
from cli.frame.existing_files import place_for_model, refuse_inputs, require_free
from cli.frame.output import Invocation, Reply
from site_agent.wording import size_words

app = options.single()


@options.command(
    app,
    "convert",
    "convert merged.svm -o python.svm --detector-kind simple_object_detector --upsample 1",
    "convert found.svm -o cpp.svm --detector-kind object_detector",
    "convert merged.dat -o merged.forest",
    "convert site-a/face-68 -o face.dat",
    "convert merged.forest -o small.forest --format poolctl-forest-half",
)
def convert(
    invocation: Invocation,
    model: Annotated[str, options.Argument("A model of any format.", "FILE|ADDRESS")],
    *,
    output: Annotated[Path, options.Option("The file to write; its suffix selects the format.")],
    output_format: options.FormatOption = "",
    detector_kind: Annotated[
        Literal["object_detector", "simple_object_detector"] | None,
        options.Option("Detectors: the form for C++ or for Python programs. Default: unchanged."),
    ] = None,
    upsample: Annotated[
        int | None,
        options.Option(
            "simple_object_detector: doublings of images. Default: unchanged.", min=0, max=16
        ),
    ] = None,
    force: options.ForceOption = False,
) -> Reply:
    """Convert a model to another format without changing its result.

    Detectors (.svm): C++ programs read an object_detector, and Python's
    dlib.simple_object_detector(FILE) reads only a simple_object_detector (--detector-kind).
    Landmark models: dlib reads .dat; a .forest file has the same content and opens instantly. A
    file of several forests (wba-final) cannot become a .dat.
    """
    file = invocation.model_file(model)
    require_free(output, force=True)
    refuse_inputs([output], [file.path], "--output", what="the model")
    with (
        place_for_model(output, force=force) as place,
        invocation.progress(f"convert {model}") as report,
    ):
        content = read_model(file.path)
        name = output_format or _format_of(output, content)
        report(0.5, "convert")
        made = convert_model(content, name, detector_kind=detector_kind, upsampling=upsample)
        digest = write_model(made, place, format_name=name)
    for remark in _remarks(content, made, name):
        invocation.warn(remark)
    data: dict[str, Any] = {
        "input": file.path,
        "input_format": recognise(file.path).name,
        "output": output,
        "format": name,
        "detector_kind": _kind_of(made),
        "upsampling": getattr(made, "upsampling", None),
        "digest": digest,
    }
    what = " ".join(word for word in (name, data["detector_kind"]) if word)
    size = size_words(output.stat().st_size)
    return Reply(data, [f"{output}  ({what}, {size})", f"sha256 {digest}"], [str(output)])


def _format_of(output: Path, content: Model) -> str:
    """Return the format that the ending means; that of the model's kind for any other ending."""
    ending = output.suffix.lower()
    named = [name for name, entry in FORMATS.items() if ending and ending in entry.suffixes]
    return named[0] if named else default_format(content).name


def _kind_of(model: Model) -> str | None:
    if not isinstance(model, FhogDetector):
        return None
    simple = model.upsampling is not None
    return "simple_object_detector" if simple else "object_detector"


def _remarks(content: Model, made: Model, format_name: str) -> list[str]:
    """Return the differences that a reader of the new file will notice."""
    remarks = []
    if isinstance(content, FhogDetector) and isinstance(made, FhogDetector):
        before, after = content.upsampling or 0, made.upsampling or 0
        if before != after:
            remarks.append(f"images were doubled {before} times first, now {after} times")
    if not FORMATS[format_name].exact:
        remarks.append(f"{format_name} rounds: the model cannot be made again from it exactly")
    return remarks
