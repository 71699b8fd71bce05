"""``poolctl methods``: the aggregation methods, with their inputs and options."""

from typing import Annotated, Any

from aggregators.methods.contract import AggregationMethod
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

    Files are merged by 'poolctl merge METHOD', with --name on the pool; rounds are held by
    'poolctl rounds start --method METHOD'. Options are given as --option NAME=VALUE.
    """
    chosen = [find_method(name)] if name else list(METHODS.values())
    data = {"items": [_describe(method) for method in chosen]}
    names = [method.name for method in chosen]
    if name:
        return Reply(data, _one(chosen[0]), names)
    rows = [
        [
            method.name,
            _INPUTS[method.kind],
            "yes" if method.contribution is not None else "no",
            ", ".join(method.options_type.model_fields),
            method.summary,
        ]
        for method in chosen
    ]
    columns = ["method", "merges", "rounds", "options", "summary"]
    return Reply(data, TableText(columns, rows), names)


def _describe(method: AggregationMethod[Any]) -> dict[str, Any]:
    options = {
        key: {"default": field.default, "meaning": field.description or ""}
        for key, field in method.options_type.model_fields.items()
    }
    return {
        "name": method.name,
        "merges": _INPUTS[method.kind],
        "rounds": method.contribution is not None,
        "summary": method.summary,
        "options": options,
    }


def _one(method: AggregationMethod[Any]) -> list[str | TableText]:
    rows = [
        [key, str(field.default), field.description or ""]
        for key, field in method.options_type.model_fields.items()
    ]
    return [
        f"{method.name} merges {_INPUTS[method.kind]}: {method.summary}",
        TableText(["option", "default", "meaning"], rows, empty="it has no options"),
    ]
