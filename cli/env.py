"""``poolctl env``: installed versions, folders and the pool in use."""

import platform
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Annotated

from cli.frame.app import installed_version
from cli.frame.errors import EXTRA_OF_LIBRARY, UsageError
from cli.frame.options import Argument, command, single
from cli.frame.output import Invocation, Reply, TableText
from cli.frame.settings_options import SettingsOptions
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

_COMMANDS = {
    "train hog-svm": "cli.vision.train:HOG_SVM_SETTINGS",
    "train ert": "cli.vision.train:ERT_SETTINGS",
    "train gaze": "cli.vision.train_gaze:GAZE_SETTINGS",
    "train saliency": "cli.vision.train_saliency:SALIENCY_SETTINGS",
    "train cross-encoder": "cli.vision.train_cross_encoder:CROSS_ENCODER_SETTINGS",
    "train gaze-head": "cli.vision.train_cross_encoder:GAZE_HEAD_SETTINGS",
    "refine": "cli.merge.refine:REFINEMENT_SETTINGS",
    "study landmarks": "cli.vision.study:LANDMARK_SETTINGS",
    "study detectors": "cli.vision.study:DETECTOR_SETTINGS",
    "study gaze": "cli.vision.study_eyes:GAZE_SETTINGS",
    "study cross-encoder": "cli.vision.study_eyes:CROSS_ENCODER_SETTINGS",
    "study egocentric": "cli.vision.study_eyes:EGOCENTRIC_SETTINGS",
    "study privacy": "cli.vision.study_eyes:PRIVACY_SETTINGS",
    "study split": "cli.vision.study_eyes:SPLIT_SETTINGS",
    "blink": "cli.blink.batch:ANALYSIS_SETTINGS",
    "dataset draw faces": "cli.dataset.draw:FACE_OPTIONS",
    "dataset draw eyes": "cli.dataset.draw:EYE_OPTIONS",
    "dataset draw clips": "cli.dataset.draw:CLIP_OPTIONS",
    "dataset draw video": "cli.dataset.draw:VIDEO_OPTIONS",
}


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
    name = " ".join(command_words)
    if name not in _COMMANDS:
        known = ", ".join(_COMMANDS)
        raise UsageError(f"{name!r} has no settings; expected one of {known}")
    module, variable = _COMMANDS[name].split(":")
    declared = getattr(import_module(module), variable)
    # Settings that need an extra are made when asked for.
    options: SettingsOptions[object] = declared() if callable(declared) else declared
    return options.reply()
