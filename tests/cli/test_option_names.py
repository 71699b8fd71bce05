"""One name, one meaning: the options that several commands have."""

from collections import defaultdict
from typing import Any

from tests.cli.test_conventions import ALL_COMMANDS

TEXT, FLAG = "text", "flag"

SHARED = {
    "--architecture": ("NAME or text", "of a network"),
    "--accept": ("SHA256 or SHA256|SITE/NAME@N", "accept what was made elsewhere, by its digest"),
    "--base": ("ADDRESS or FILE|ADDRESS or FILE", "the model to go on from"),
    "--config": ("FILE", "a configuration file"),
    "--contact": (TEXT, "of a site"),
    "--card": (f"FILE or {FLAG}", "the card of a version: read from a file, or shown"),
    "--copy": (FLAG, "also copy the images"),
    "--data": ("FOLDER or DATA", "of a pool on SQLite; what a site contributes"),
    "--database-url": ("URL", "of a pool"),
    "--dataset-name": ("NAME", "what data are called in tables"),
    "--despite-withdrawal": (FLAG, "go on although the base was withdrawn"),
    "--description": (TEXT, "of what is made"),
    "--detector": ("FILE|ADDRESS", "a model that finds faces"),
    "--display-name": (TEXT, "of a site or a person"),
    "--draft": (FLAG, "hidden from other sites at first"),
    "--dry-run": (FLAG, "show what would be done"),
    "--email": (TEXT, "of a person"),
    "--expires-in-days": ("DAYS", "how long a secret is valid"),
    "--force": (FLAG, "replace a file"),
    "--format": ("NAME or text", "of the file to write"),
    "--frame-rate-hz": (TEXT, "of a recording"),
    "--holdout": ("DATA or text", "what is held out of training"),
    "--images": ("FOLDER", "with the images of a COCO file"),
    "--kind": ("KIND or text", "of models or events"),
    "--label": ("KEY=VALUE or KEY[=VALUE]", "a label of a model"),
    "--landmarks": ("FILE|ADDRESS", "a model that places landmarks"),
    "--limit": ("N", "how many lines at most"),
    "--long": (FLAG, "show more columns"),
    "--method": ("NAME or text", "that combines models or contributions"),
    "--metric": ("BOUND or KEY=NUMBER or NAME", "a score of a model"),
    "--name": ("NAME or [SITE/]NAME or text", "of what is made or sought"),
    "--nwb": (FLAG, "write an NWB file"),
    "--option": ("KEY=VALUE", "an option of a method"),
    "--output": ("FILE or FILE|FOLDER or FOLDER or PNG", "where results go"),
    "--overlay": (FLAG, "write the video with landmarks"),
    "--parts": ("A,B,... or text", "landmarks by name, number or group"),
    "--person-pattern": ("REGEX", "who is on an image, by its name"),
    "--persons": ("CSV or A,B,... or text", "who is on an image, as a table; persons by name"),
    "--pool-wide": (FLAG, "a role for all sites"),
    "--port": (TEXT, "to listen on"),
    "--quota": ("SIZE", "of a site"),
    "--reason": (TEXT, "why"),
    "--redo": (FLAG, "repeat what is finished"),
    "--remove": (FLAG, "instead of what the command does"),
    "--replay": ("RECIPE|ADDRESS", "the merge to repeat"),
    "--report": ("FILE", "a list of all findings as JSON"),
    "--reviewed": (FLAG, "reviewed blinks in place of automatic ones"),
    "--role": (TEXT, "of a token or a person"),
    "--rounds": (TEXT, "of refinement"),
    "--secure": ("CHARTER", "rounds by secure sums"),
    "--seed": (TEXT, "of everything that is drawn at random"),
    "--sessions": ("FEWEST-MOST or A,B,...", "of persons"),
    "--server": ("HOST:PORT or SITE=KEY", "of a federation; of a charter"),
    "--set": ("NAME=VALUE", "one setting"),
    "--settings": ("FILE", "settings"),
    "--site": ("SITE", "one site by name"),
    "--site-count": (TEXT, "of sites"),
    "--sites": ("A,B,C", "several sites by name"),
    "--state": (TEXT, "of what is listed"),
    "--term": ("CODE[=DETAIL]", "a term of use"),
    "--test": ("FACES", "a test set"),
    "--threads": (TEXT, "within one process"),
    "--threshold": (TEXT, "added to the score that a detection needs"),
    "--together": (TEXT, "what is not divided between parts"),
    "--training-scores": (FLAG, "score a model on its training data"),
    "--upsample": (TEXT, "how often images are doubled"),
    "--visibility": (TEXT, "who sees a model"),
    "--weight": ("NUMBERS", "of the inputs of a merge"),
    "--without": ("DIGEST|ADDRESS", "a model to leave out"),
    "--workers": (TEXT, "processes side by side"),
    "--yes": (FLAG, "do not ask"),
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
            is_own = option.param_type_name == "option" and option.name != "help"
            if is_own and option.rich_help_panel != "Every command":
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
