"""``poolctl settings``: every setting of a command, as a file that the command reads."""

from collections.abc import Sequence
from importlib import import_module
from typing import Annotated

from cli.frame.errors import UsageError
from cli.frame.options import Argument, command, single
from cli.frame.output import Invocation, Reply
from cli.frame.settings_options import SettingsOptions

app = single()

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
    "study split": "cli.vision.study_eyes:SPLIT_SETTINGS",
    "blink": "cli.blink.batch:ANALYSIS_SETTINGS",
}


@command(
    app, "settings", "settings train ert > settings.toml", "settings blink", "settings study gaze"
)
def settings(
    _invocation: Invocation,
    words: Annotated[
        Sequence[str], Argument("A command with --settings, such as: train ert.", "COMMAND")
    ],
) -> Reply:
    """Print a settings file with every setting of a command, its default and what it does.

    Change what you need, delete the rest, and give the file to the command with --settings.
    """
    name = " ".join(words)
    if name not in _COMMANDS:
        known = ", ".join(_COMMANDS)
        raise UsageError(f"{name!r} has no settings; expected one of {known}")
    module, variable = _COMMANDS[name].split(":")
    options: SettingsOptions[object] = getattr(import_module(module), variable)
    return options.reply()
