"""Conventions that hold for every command."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from cli.env import SETTINGS_OF_COMMANDS
from cli.frame.app import COMMANDS, app
from cli.quickstart import next_lines
from tests.cli.conftest import Run, run_process
from tests.conftest import PROJECT_ROOT

HEAVY = ("numpy", "numba", "httpx", "dlib", "cv2", "pydantic", "rich", "scipy", "fastapi", "torch")


def all_commands() -> Iterator[tuple[str, Any]]:
    """Yield every command with the arguments that call it."""
    root: Any = typer.main.get_command(app)
    for entry in COMMANDS:
        yield from commands_below(entry.name, root.get_command(None, entry.name))


def commands_below(arguments: str, command: Any) -> Iterator[tuple[str, Any]]:
    if hasattr(command, "commands"):
        for name, below in command.commands.items():
            yield from commands_below(f"{arguments} {name}", below)
    else:
        yield arguments, command


ALL_COMMANDS = dict(all_commands())


def test_starting_loads_no_heavy_library() -> None:
    code = f"import sys, cli.frame.app; print([name for name in {HEAVY} if name in sys.modules])"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"


def test_the_overview_loads_no_heavy_library() -> None:
    code = (
        "import sys; from cli.frame.app import main; main(['--help']); "
        f"print([name for name in {HEAVY} if name in sys.modules], file=sys.stderr)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stderr.strip() == "[]"
    for entry in COMMANDS:
        assert entry.name in result.stdout


def test_the_public_names_load_when_they_are_asked_for() -> None:
    code = (
        "import sys, site_agent, aggregators; assert 'httpx' not in sys.modules; "
        "from site_agent import PoolClient; from aggregators import merge; "
        "print(PoolClient.__name__, merge.__name__)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.split() == ["PoolClient", "merge"]


@pytest.mark.parametrize("arguments", ALL_COMMANDS)
def test_every_command_has_the_conventions_and_an_example(arguments: str, poolctl: Run) -> None:
    shown = poolctl(*arguments.split(), "--help")
    assert shown.code == 0, shown.err
    for option in ("--json", "--quiet", "-q", "--no-progress", "--profile", "--debug"):
        assert option in shown.out
    assert f"poolctl {arguments}" in shown.out.split("Examples:")[1]
    assert ALL_COMMANDS[arguments].help.strip()


@pytest.mark.parametrize("arguments", ALL_COMMANDS)
def test_wrong_usage_is_code_2_and_an_envelope(arguments: str, poolctl: Run) -> None:
    plain = poolctl(*arguments.split(), "--no-such-option")
    assert plain.code == 2
    assert plain.out == ""
    assert "--no-such-option" in plain.err
    assert f"poolctl {arguments} --help" in plain.err
    poolctl(*arguments.split(), "--no-such-option", "--json").fails(2, "usage")


def test_destructive_commands_ask() -> None:
    for arguments in (
        "admin people revoke", "admin people change", "admin sites change", "cache rm",
        "keys revoke", "models rm", "models withdraw", "rounds cancel", "rounds take-back",
    ):  # fmt: skip
        options = {name for parameter in ALL_COMMANDS[arguments].params for name in parameter.opts}
        assert {"--yes", "-y"} <= options, arguments


def test_no_command_is_code_2_and_shows_the_help(poolctl: Run) -> None:
    shown = poolctl()
    assert shown.code == 2
    assert "Start here" in shown.out + shown.err


def test_an_unknown_command_names_near_ones(poolctl: Run) -> None:
    poolctl("upload-model").fails(2, "upload")
    assert "There are login, " in poolctl("auth", "xyz").err
    assert poolctl("nothing-like-it", "--json").error["code"] == "usage"


def test_the_settings_of_every_command_are_printed(poolctl: Run) -> None:
    for name in SETTINGS_OF_COMMANDS:
        kind = "faces" if "draw" in name else "gaze"
        shown = poolctl("settings", *name.replace("KIND", kind).split())
        assert shown.code == 0, f"{name}: {shown.err}"
        assert "=" in shown.out, name
    assert "=" in poolctl("settings", "study gaze").out
    assert "one of gaze, saliency" in poolctl("settings", "train", "network").err


def test_a_list_of_commands_cuts_no_sentence(poolctl: Run) -> None:
    assert "..." not in poolctl("models", "--help").out.split("Commands:")[1]


def test_completion_offers_commands_and_options() -> None:
    shown = run_process(_POOLCTL_COMPLETE="complete_bash", COMP_WORDS="poolctl mo", COMP_CWORD="1")
    assert "models" in shown.out.split()
    shown = run_process(
        _POOLCTL_COMPLETE="complete_bash", COMP_WORDS="poolctl models l", COMP_CWORD="2"
    )
    assert {"ls", "lineage"} <= set(shown.out.split())


def sources(pattern: str) -> Iterator[Path]:
    for name in ("aggregators", "cli", "migrations", "pool_server", "site_agent"):
        yield from (PROJECT_ROOT / name).rglob(pattern)
    yield from PROJECT_ROOT.glob(pattern)


def test_every_command_that_is_named_exists() -> None:
    """In hints, pages and documentation: of a group, only words that are its commands."""
    root: Any = typer.main.get_command(app)
    groups = {name: root.get_command(None, name) for name in (entry.name for entry in COMMANDS)}
    named = re.compile(r"\bpoolctl ([a-z]+) ([a-z][a-z-]+)(?: ([a-z][a-z-]+))?")
    checked, unknown = 0, []
    for path in [*sources("*.py"), *sources("*.html"), *sources("README.md")]:
        for group, *arguments in named.findall(path.read_text(encoding="utf-8")):
            command = groups.get(group)
            for word in filter(None, arguments):
                # After a group with a default, or after a command, may come anything.
                if not getattr(command, "no_args_is_help", False):
                    break
                checked += 1
                command = command.get_command(None, word)
                if command is None:
                    unknown.append(f"{path.relative_to(PROJECT_ROOT)}: poolctl {group} {word}")
    assert checked > 100
    assert not unknown


def test_every_option_that_is_named_exists() -> None:
    """In messages and help, and of a command that is named before it: that command has it."""
    of = {
        arguments: {"--help"}.union(
            *(parameter.opts + parameter.secondary_opts for parameter in command.params)
        )
        for arguments, command in ALL_COMMANDS.items()
    }
    # The second is an option of a program of the tests, the third one of Dask.
    known = {"--version", "--fit", "--nthreads"}.union(*of.values())
    option = re.compile(r"(?<![\w-])--[a-z][a-z-]*[a-z](?![\w{-])")
    longest_first = "|".join(sorted(map(re.escape, of), key=len, reverse=True))
    named = re.compile(rf"poolctl ({longest_first})\b([^\n'\"`()#]*)")
    checked, unknown = 0, []
    for path in [*sources("*.py"), *sources("README.md")]:
        text = path.read_text(encoding="utf-8").replace("\\\n", "")
        uses = [(name, known) for name in option.findall(text) if path.suffix == ".py"]
        for arguments, rest in named.findall(text):
            uses += [(name, of[arguments]) for name in option.findall(rest)]
        checked += len(uses)
        place = path.relative_to(PROJECT_ROOT)
        unknown += [f"{place}: {name}" for name, options in uses if name not in options]
    assert checked > 1000
    assert not unknown


def test_quickstart_and_the_readme_show_commands_with_their_options(
    poolctl: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["poolctl"])
    url = "http://127.0.0.1:8710"
    shown = next_lines(Path("trial"), url)
    shown += (PROJECT_ROOT / "README.md").read_text().replace("\\\n", "").splitlines()
    commands = [line for line in shown if line.startswith("poolctl ")]
    assert len(commands) > 20
    for line in commands:
        told = poolctl(*shlex.split(line, comments=True)[1:], "--help")
        assert told.code == 0, f"{line}: {told.err}"
