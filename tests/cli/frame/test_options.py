"""Groups of options: dataclasses with the options of a command as fields."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import pytest
import typer

from cli.frame.options import Argument, Option, command, single
from cli.frame.output import Invocation, Reply


@dataclass(frozen=True)
class Selection:
    kind: Annotated[str, Option("Of this kind.", "KIND")]
    label: Annotated[Sequence[str], Option("With this label.")] = ()


@dataclass(frozen=True)
class NarrowSelection(Selection):
    latest: Annotated[bool, Option("Only the newest.")] = False


app = single()


@command(app, "try", "try --kind ert")
def attempt(
    _invocation: Invocation,
    arguments: Annotated[Sequence[str], Argument("Any words.")] = (),
    *,
    label: NarrowSelection,  # as one of its own options
    seed: Annotated[int, Option("A seed.")] = 3,
) -> Reply:
    """Return the arguments."""
    return Reply({"words": arguments, "selection": label, "seed": seed})


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Any:
    told: list[Reply] = []
    monkeypatch.setattr(Invocation, "print_reply", lambda _self, reply: told.append(reply))
    program: Any = typer.main.get_command(app)
    program.main(args=list(arguments), standalone_mode=False)
    return told[0].data


def test_a_group_arrives_as_an_instance(monkeypatch: pytest.MonkeyPatch) -> None:
    arrived = run(monkeypatch, "a", "b", "--kind", "ert", "-l", "x=1", "--label", "y=2", "--latest")
    assert arrived["selection"] == NarrowSelection("ert", ("x=1", "y=2"), True)
    assert (arrived["words"], arrived["seed"]) == (["a", "b"], 3)


def test_defaults_hold_and_requirements_too(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, "--kind", "ert")["selection"] == NarrowSelection("ert")
    with pytest.raises(Exception, match="kind"):
        run(monkeypatch)


def test_options_are_named_by_their_fields() -> None:
    program: Any = typer.main.get_command(app)
    named = {
        parameter.name: (parameter.opts, parameter.secondary_opts) for parameter in program.params
    }
    assert named["label"] == (["--label", "-l"], [])
    assert named["latest"] == (["--latest"], [])
