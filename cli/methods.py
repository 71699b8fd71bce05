"""``poolctl methods``: the aggregation methods, with their inputs and options."""

from typing import Annotated

from aggregators.methods.registry import METHODS, find_method
from cli.frame.options import Argument, command, single
from cli.frame.output import Invocation, Reply, TableText

app = single()

_INPUTS = {"hog-svm": "face detectors", "ert": "landmark models", "network": "networks"}


@command(app, "methods", "methods", "methods fedadam", "methods --json")
def methods(
    _invocation: Invocation,
    name: Annotated[
        str, Argument("One method, with all its options. Default: list all.", "METHOD")
    ] = "",
) -> Reply:
    """List the aggregation methods with their inputs and options.

    Files are merged by 'poolctl merge METHOD', on the pool by 'poolctl merges start'; rounds are
    held by 'poolctl rounds start --method METHOD'. Options are given as --option NAME=VALUE.
    """
    chosen = [find_method(name)] if name else list(METHODS.values())
    items = [
        {
            "name": method.name,
            "merges": _INPUTS[method.kind],
            "rounds": method.contribution is not None,
            "summary": method.summary,
            "options": {
                key: {"default": field.default, "meaning": field.description or ""}
                for key, field in method.options_type.model_fields.items()
            },
        }
        for method in chosen
    ]
    if name:
        [only] = items
        rows = [
            [key, str(option["default"]), option["meaning"]]
            for key, option in only["options"].items()
        ]
        text: list[str | TableText] = [
            f"{name} merges {only['merges']}: {only['summary']}",
            TableText(["option", "default", "meaning"], rows, empty="it has no options"),
        ]
    else:
        rows = [
            [
                item["name"],
                item["merges"],
                "yes" if item["rounds"] else "no",
                ", ".join(item["options"]),
                item["summary"],
            ]
            for item in items
        ]
        text = [
            TableText(
                ["method", "merges", "rounds", "options", "summary"],
                rows,
                keep=("method", "merges", "rounds"),
            )
        ]
    return Reply({"items": items}, text, [item["name"] for item in items])
