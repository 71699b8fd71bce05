"""``poolctl env``: installed versions, folders and the pool in use."""

import platform
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Annotated

from cli.frame.app import installed_version
from cli.frame.errors import EXTRA_OF_LIBRARY, UsageError
from cli.frame.options import Argument, command, single
from cli.frame.output import Invocation, Reply, TableText
from cli.frame.settings_options import CommandSettings
from site_agent import own_folders
from site_agent.pool import profiles

app = single()


@command(app, "env", "env", "env --json")
def env(invocation: Invocation) -> Reply:
    """Show versions, folders, installed extras and the pool in use.

    Include the output when you ask for help.
    """
    profile = profiles.load_profile(invocation.profile or None)
    missing: dict[str, list[str]] = {extra: [] for extra in EXTRA_OF_LIBRARY.values()}
    for library, extra in EXTRA_OF_LIBRARY.items():
        if not _is_installed(library):
            missing[extra].append(library)
    data = {
        "poolctl": installed_version(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "config_file": str(profiles.config_file()),
        "data_folder": str(own_folders.data_folder()),
        "cache_folder": str(own_folders.cache_folder()),
        "profile": profile.name,
        "pool": profile.endpoint or None,
        "logged_in": bool(profile.token),
        "offline": profiles.is_offline(),
        "extras": {extra: not lacking for extra, lacking in missing.items()},
    }
    rows = [
        [name.replace("_", " "), _words(value)] for name, value in data.items() if name != "extras"
    ]
    for extra, lacking in missing.items():
        state = (
            "installed"
            if not lacking
            else f'missing {", ".join(lacking)} (pip install "poolctl[{extra}]")'
        )
        rows.append([f"extra {extra}", state])
    return Reply(data, TableText(["what", "value"], rows), [str(data["poolctl"])])


def _words(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else str(value)


def _is_installed(library: str) -> bool:
    try:
        return find_spec(library) is not None
    except ValueError:  # loaded, but without a specification
        return False


settings_app = single()

SETTINGS_OF_COMMANDS = {
    "train hog-svm": "cli.vision.train:HOG_SVM_SETTINGS",
    "train ert": "cli.vision.train:ERT_SETTINGS",
    "train network KIND": "cli.vision.train_networks:NETWORK_SETTINGS",
    "refine": "cli.merge.refine:REFINEMENT_SETTINGS",
    "study KIND": "cli.vision.study:SETTINGS",
    "dataset check": "site_agent.training.detector_plan:HOG_SVM_DEFAULTS",
    "dataset convert": "cli.dataset.change:READING_SETTINGS",
    "evaluate": "cli.vision.evaluate:EVALUATION_SETTINGS",
    "rounds contribute": "cli.merge.contributions:RULES",
    "agent run": "cli.merge.agent:example_settings",
    "split plan": "cli.split:PLANNED_SETTINGS",
    "split provision": "cli.split.live:PLAN_SETTINGS",
    "split simulate": "cli.split.live:PLAN_SETTINGS",
    "privacy probe": "cli.privacy:SMASHED_SETTINGS",
    "blink": "cli.blink.inputs:ANALYSIS_SETTINGS",
    "dataset draw KIND": "site_agent.datasets.synthetic.drawing:KINDS",
}
"""The settings of each command; of one with a KIND, a table of settings by kind."""


@command(
    settings_app,
    "settings",
    "settings train ert > settings.toml",
    "settings blink",
    "settings study gaze",
)
def settings(
    _invocation: Invocation,
    command_words: Annotated[
        Sequence[str], Argument("A command with --settings, such as: train ert.", "COMMAND")
    ],
) -> Reply:
    """Print a settings file with every setting of a command, its default and meaning.

    Change the settings you need, delete the rest, and give the file to the command with --settings.
    """
    *names, kind = " ".join(command_words).split() or [""]
    name = " ".join([*names, kind])
    if f"{name} KIND" in SETTINGS_OF_COMMANDS:
        names, kind = [*names, kind], ""
    of_kind = " ".join([*names, "KIND"])
    place = SETTINGS_OF_COMMANDS.get(name) or SETTINGS_OF_COMMANDS.get(of_kind)
    if place is None:
        known = ", ".join(SETTINGS_OF_COMMANDS)
        raise UsageError(f"{name!r} has no settings; expected one of {known}")
    # Settings that need an extra are read only when asked for.
    module, variable = place.split(":")
    declared = getattr(import_module(module), variable)
    if callable(declared):
        example: Reply = declared()
        return example
    if isinstance(declared, Mapping):
        if kind not in declared:
            raise UsageError(f"KIND {kind!r}: expected one of {', '.join(declared)}")
        declared = declared[kind]
    if not isinstance(declared, CommandSettings):
        declared = CommandSettings(getattr(declared, "settings", declared))
    return declared.reply()
