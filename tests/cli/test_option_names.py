"""One name, one meaning: the options that several commands have."""

from collections import defaultdict
from typing import Any

from cli.frame.output import Conventions
from tests.cli.test_conventions import ALL_COMMANDS

TEXT, FLAG = "text", "flag"

SHARED = {
    "--architecture": ("NAME or text", "of a network"),
    "--accept": ("SHA256 or SHA256|SITE/NAME@N", "accept what was made elsewhere, by its digest"),
    "--base": ("ADDRESS or FILE|ADDRESS or FILE", "the model to go on from"),
    "--card": (f"FILE or {FLAG}", "the card of a version: read from a file, or shown"),
    "--data": ("FOLDER or DATA", "of a pool on SQLite; what a site contributes"),
    "--format": ("NAME or text", "of the file to write"),
    "--holdout": ("DATA or text", "what is held out of training"),
    "--kind": ("KIND or text", "of models or events"),
    "--label": ("KEY=VALUE or KEY[=VALUE]", "a label of a model"),
    "--method": ("NAME or text", "that combines models or contributions"),
    "--metric": ("BOUND or KEY=NUMBER or NAME", "a score of a model"),
    "--name": ("NAME or [SITE/]NAME or text", "of what is made or sought"),
    "--output": ("FILE or FILE|FOLDER or FOLDER or PNG", "where results go"),
    "--parts": ("A,B,... or text", "landmarks by name, number or group"),
    "--persons": ("CSV or A,B,... or text", "who is on an image, as a table; persons by name"),
    "--sessions": ("FEWEST-MOST or A,B,...", "of persons"),
    "--server": ("HOST:PORT or SITE=KEY", "of a federation; of a charter"),
}

LETTERS = {
    "-c": "--config", "-l": "--label", "-m": "--metric", "-n": "--name",
    "-o": "--output", "-q": "--quiet", "-y": "--yes",
}  # fmt: skip


def own_options() -> dict[str, dict[str, Any]]:
    """Return the options of each name by command, without those that every command has."""
    options_of: dict[str, dict[str, Any]] = defaultdict(dict)
    for arguments, command in ALL_COMMANDS.items():
        for option in command.params:
            is_option = option.param_type_name == "option" and option.name != "help"
            if is_option and option.name not in Conventions.__dataclass_fields__:
                options_of[option.opts[0]][arguments] = option
    return options_of


def form_of(option: Any) -> str:
    """Return the form of an option's value; settings are VALUEs, explained in their help."""
    if option.is_flag:
        return FLAG
    return TEXT if option.metavar in (None, "VALUE") else str(option.metavar)


def test_options_of_several_commands_mean_the_same() -> None:
    options = own_options()
    assert set(SHARED) <= set(options)
    for name, uses in options.items():
        forms = {form_of(option) for option in uses.values()}
        form, meaning = SHARED.get(name, (min(forms), "one form, or say in the table what it is"))
        assert forms <= set(form.split(" or ")), f"{name} ({meaning}): {sorted(uses)}"


def test_letters_stand_for_one_option() -> None:
    for name, uses in own_options().items():
        for arguments, option in uses.items():
            assert all(LETTERS[letter] == name for letter in option.opts[1:]), f"{arguments} {name}"
            assert name != "--output" or "-o" in option.opts, arguments
