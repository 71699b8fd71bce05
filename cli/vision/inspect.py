"""``poolctl inspect``: describe the content of a model file."""

from pathlib import Path
from typing import Annotated, Any

from aggregators.formats import file_digest, fingerprint, read_model, recognise
from aggregators.methods import merge_keys
from aggregators.models import ForestEnsemble, Model, ShapePredictor
from cli.frame.options import Argument, command, single
from cli.frame.output import Invocation, Reply, TableText
from site_agent.datasets.part_order import group_of_shape
from site_agent.pool.sidecars import Sidecars
from site_agent.wording import count_words, size_words

app = single()


@command(app, "inspect", "inspect siteA.dat", "inspect site-a/face-68@2 --json")
def inspect(
    invocation: Invocation,
    model: Annotated[str, Argument("A model of any format.", "FILE|ADDRESS")],
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
