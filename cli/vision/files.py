"""``poolctl inspect`` and ``convert``: describe a model file, or write it in another format."""

from pathlib import Path
from typing import Annotated, Any, Literal

from aggregators.formats import (
    FORMATS,
    default_format,
    file_digest,
    fingerprint,
    read_model,
    recognise,
    write_model,
)
from aggregators.formats.registry import convert_model
from aggregators.methods import merge_keys
from aggregators.models import FhogDetector, ForestEnsemble, Model, ShapePredictor
from cli.frame import options
from cli.frame.existing_files import refuse_inputs, require_free
from cli.frame.output import Invocation, Reply, TableText
from site_agent.datasets.part_order import group_of_shape
from site_agent.pool.sidecars import Sidecars
from site_agent.tasks.testing import lineages_of
from site_agent.training.overlap import remember_learned_of
from site_agent.wording import count_words, size_words

app = options.single()
inspect_app = options.single()


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
    refuse_inputs([output], [file.path], "--output", what="the model")
    require_free(output, force=force)
    with invocation.progress(f"convert {model}") as report:
        content = read_model(file.path)
        name = output_format or _format_of(output, content)
        report(0.5, "convert")
        made = convert_model(content, name, detector_kind=detector_kind, upsampling=upsample)
        digest = write_model(made, output, format_name=name)
    remember_learned_of(file.path, digest, *lineages_of(invocation, [file.path]))
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


# ``poolctl inspect``.
@options.command(inspect_app, "inspect", "inspect siteA.dat", "inspect site-a/face-68@2 --json")
def inspect(
    invocation: Invocation,
    model: Annotated[str, options.Argument("A model of any format.", "FILE|ADDRESS")],
) -> Reply:
    """Describe a model file: format, fingerprint, and methods that can merge it.

    The format is recognised by the content, not by the name. A method can merge two models if their
    keys for it are equal.
    """
    file = invocation.model_file(model)
    model_format = recognise(file.path)
    with invocation.progress(f"read {model}") as report:
        content = read_model(file.path)
        report(0.6, "digest")
        digest = file_digest(file.path)
    prints = dict(fingerprint(content))
    keys = merge_keys(prints)
    data: dict[str, Any] = {
        "path": file.path,
        "address": file.version.address if file.version is not None else None,
        "format": model_format.name,
        "digest": digest,
        "size_bytes": file.path.stat().st_size,
        "fingerprint": prints,
        "merge_keys": keys,
        "landmark_group": _landmark_group(content),
    }
    return Reply(data, _text(data, file.path), [digest])


def _text(data: dict[str, Any], path: Path) -> list[str | TableText]:
    prints = data["fingerprint"]
    rows = [
        ["file", str(data["address"] or data["path"])],
        ["kind", f"{prints.get('kind')} ({data['format']})"],
        ["sha256", data["digest"]],
        ["size", f"{size_words(data['size_bytes'])} ({data['size_bytes']} bytes)"],
        *[
            [key.replace("_", " "), _short(value)]
            for key, value in prints.items()
            if key not in {"kind", "format"}
        ],
    ]
    if data["landmark_group"]:
        rows.append(["landmarks", f"{data['landmark_group']}, by the mean shape"])
    sidecars = Sidecars.read(path, data["digest"])
    if sidecars.recipe is not None:
        count = len(sidecars.recipe.get("inputs", []))
        rows.append(["recipe", f"{sidecars.recipe_file}: {count_words(count, 'model')}"])
    name = data["address"] or path.name
    methods = ", ".join(data["merge_keys"])
    verdict = f"{name} is a model of kind {prints.get('kind')}; "
    verdict += f"it merges by {methods}." if methods else "no method merges it."
    return [verdict, TableText(["what", "value"], rows)]


def _landmark_group(content: Model) -> str | None:
    """Return the group of the 68 landmarks that a model places, where it places just one."""
    if isinstance(content, ForestEnsemble):
        content = content.members[0]
    if not isinstance(content, ShapePredictor):
        return None
    return group_of_shape(content.initial_shape)


def _short(value: Any) -> str:
    if isinstance(value, dict):
        return f"{len(value)} entries"
    text = str(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
