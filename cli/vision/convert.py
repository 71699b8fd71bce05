"""``poolctl convert`` and ``prune``: write a model in another format, or with fewer weights."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from aggregators import pruning
from aggregators.formats import FORMATS, default_format, read_model, recognise, write_model
from aggregators.formats.registry import convert_model, format_of_suffix
from aggregators.models import KIND_WORDS, FhogDetector, Model, StateDict
from aggregators.pruning import EntrySize
from cli.frame import options
from cli.frame.errors import UsageError
from cli.frame.existing_files import place_for_model, refuse_inputs, require_free, words_on_existing
from cli.frame.output import Invocation, Reply, TableText
from site_agent.wording import size_words

if TYPE_CHECKING:
    from site_agent.tasks.model_files import ModelFile


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
    dry_run: options.DryRunOption = False,
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
        digest = None if dry_run else write_model(made, place, format_name=name)
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
        "converted": not dry_run,
    }
    what = " ".join(word for word in (name, data["detector_kind"]) if word)
    if dry_run:
        summary = f"would write {output} ({what}){words_on_existing(output, force=force)}"
        return Reply(data, summary, [str(output)])
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


# ``poolctl prune``.
prune_app = options.single()
Layers = Literal["linear", "convolution"]
Scope = Literal["layer", "global"]

_SIZES = ("dense_bytes", "coordinate_bytes", "stored_bytes")
_SIZE_COLUMNS = ("weights left", "dense MiB", "torch COO MiB", "sparse MiB")


@options.command(
    prune_app,
    "prune",
    "prune gaze.safetensors --fraction 0.9 -o gaze.sparse",
    "prune gaze.safetensors --fraction 0.9 --global -o pruned.safetensors",
)
def prune(
    invocation: Invocation,
    network: Annotated[str, options.Argument("A network.", "FILE|ADDRESS")],
    *,
    fraction: Annotated[
        float, options.Option("Share of the weights that become zero.", min=0.0, max=1.0)
    ],
    output: Annotated[Path, options.Option("The file to write: NAME.sparse or .safetensors.")],
    layers: Annotated[Layers, options.Option("The layers to prune.")] = "linear",
    over_all: Annotated[
        bool,
        options.Option("Prune the fraction of all layers together, not of each.", name="--global"),
    ] = False,
    force: options.ForceOption = False,
    dry_run: options.DryRunOption = False,
) -> Reply:
    """Set the weights of least magnitude to zero, which makes a network's file smaller.

    Biases are kept. A .sparse file stores each entry in its smallest form: dense, with a bit mask,
    or with indices; all commands read it as any network, and 'poolctl convert' makes it a
    .safetensors file. The table compares its size with that of sparse COO tensors of torch;
    'poolctl evaluate' measures the error.
    """
    file = invocation.model_file(network)
    content = _read_network(file)
    names = pruning.weights_of_layers(content, layers)
    if not names:
        raise UsageError(f"--layers {layers}: the network has no such layers")
    require_free(output, force=True)
    refuse_inputs([output], [file.path], "--output", what="the network")
    scope: Scope = "global" if over_all else "layer"
    pruned = pruning.prune(content, names, fraction, scope)
    name = format_of_suffix(output) or "poolctl-sparse"
    digest = None
    if not dry_run:
        with place_for_model(output, force=force) as place:
            digest = write_model(pruned, place, format_name=name)
    sizes = pruning.entry_sizes(pruned)
    total = _total(sizes)
    rows = [[size.name, size.form, *_size_cells(asdict(size))] for size in sizes]
    rows.append(["all", "", *_size_cells(total)])
    data: dict[str, Any] = {"input": file.path, "layers": layers, "scope": scope}
    data |= {"fraction": fraction}
    data |= {"output": output, "format": name, "digest": digest, "entries": sizes, "all": total}
    sheet = TableText(["entry", "form", *_SIZE_COLUMNS], rows)
    if dry_run:
        summary = f"would write {output} ({name}){words_on_existing(output, force=force)}"
        return Reply(data, [sheet, summary], [str(output)])
    summary = f"{output}  ({name}, {size_words(output.stat().st_size)})"
    return Reply(data, [sheet, summary, f"sha256 {digest}"], [str(output)])


def _read_network(file: "ModelFile") -> StateDict:
    content = read_model(file.path)
    if not isinstance(content, StateDict):
        raise UsageError(f"{file.word}: is a {KIND_WORDS[type(content)]}, expected a network")
    return content


def _total(sizes: list[EntrySize]) -> dict[str, int]:
    return {
        field: sum(getattr(size, field) for size in sizes) for field in ("numbers", "kept", *_SIZES)
    }


def _size_cells(size: dict[str, Any]) -> list[str]:
    left = f"{100 * size['kept'] / max(1, size['numbers']):.4g} %"
    return [left, *(f"{size[field] / 2**20:.3f}" for field in _SIZES)]
