"""``--settings`` and ``--set``: the settings of a command, from a file and one by one."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

from cli.frame.options import Option
from cli.frame.output import Reply
from cli.frame.values import key_value_pairs
from site_agent.settings import (
    changed_values,
    list_settings,
    read_settings_file,
    settings_toml,
    with_values,
)

S = TypeVar("S")


@dataclass(frozen=True)
class SettingsOptions:
    """The options that change the settings of a command."""

    settings_file: Annotated[
        Path | None,
        Option(
            "Read settings from this TOML file; 'poolctl settings COMMAND' prints one.",
            name="--settings",
        ),
    ] = None
    assignments: Annotated[
        Sequence[str],
        Option(
            "Change one setting; repeatable. It takes precedence over the file.",
            "NAME=VALUE",
            name="--set",
        ),
    ] = ()


@dataclass(frozen=True)
class CommandSettings(Generic[S]):
    """The settings of a command, as ``poolctl settings`` prints them."""

    defaults: S
    leave_out: Collection[str] = ()
    """Settings that cannot be given in this way."""

    def read(self, options: SettingsOptions, base: S | None = None) -> S:
        """Return the settings with the changes of the options; `base` replaces the defaults."""
        settings = self.defaults if base is None else base
        if options.settings_file is not None:
            settings = read_settings_file(options.settings_file, settings, self.leave_out)
        return with_values(settings, key_value_pairs(options.assignments, "--set"), self.leave_out)

    def repeated(self, settings: S, base: S | None = None) -> list[str]:
        """Return the words of a command line that give these settings, from `base` on."""
        changed = changed_values(settings, self.leave_out, base)
        return [word for name, text in changed.items() for word in ("--set", f"{name}={text}")]

    def reply(self) -> Reply:
        """Return all settings with their explanations, as a settings file has them."""
        known = list_settings(self.defaults, self.leave_out)
        data: dict[str, Any] = {
            name: {"value": setting.value, "expected": setting.expected, "text": setting.text}
            for name, setting in known.items()
        }
        text = settings_toml(self.defaults, self.leave_out)
        return Reply(data, text.rstrip(), list(known))
