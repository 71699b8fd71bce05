"""``--set``, ``--settings``, and options of their own for the settings that people use most."""

import inspect
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

import typer

from cli.frame.output import Reply
from cli.frame.values import key_value_pairs
from site_agent.settings import (
    changed_values,
    list_settings,
    read_settings_file,
    setting_text,
    settings_toml,
    with_values,
)

S = TypeVar("S")

_PANEL = "Settings"
_FILE, _WORDS = "settings_file", "settings_words"


@dataclass(frozen=True)
class SettingsOptions(Generic[S]):
    """The options that give a command its settings.

    `defaults`: The settings when nothing is given. `show`: The command that prints them, after
    ``poolctl``. `shown`: Full names of the settings that are options, too, under the last part of
    the name. `leave_out`: Settings that cannot be given in this way.
    """

    defaults: S
    show: str
    shown: Sequence[str] = ()
    leave_out: Collection[str] = ()

    def parameters(self) -> list[inspect.Parameter]:
        """Return the options, as ``parameters`` of `options.command`."""
        known = list_settings(self.defaults, self.leave_out) if self.shown else {}
        options = [self._option(name, known[name]) for name in self.shown]
        file = typer.Option(
            "--settings",
            metavar="FILE",
            help=f"Read settings from this TOML file; 'poolctl {self.show}' prints one.",
            rich_help_panel=_PANEL,
        )
        assignments = typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Change one setting; repeatable. It takes precedence over the file.",
            rich_help_panel=_PANEL,
        )
        return [
            *options,
            _parameter(_FILE, Path | None, file, None),
            _parameter(_WORDS, list[str], assignments, []),
        ]

    def take(self, values: dict[str, Any], defaults: S | None = None) -> S:
        """Take the values of the options out of `values` and return the settings."""
        settings = self.defaults if defaults is None else defaults
        file, assignments = values.pop(_FILE), values.pop(_WORDS)
        if file is not None:
            settings = read_settings_file(file, settings, self.leave_out)
        changes: dict[str, Any] = key_value_pairs(assignments, "--set")
        for name in self.shown:
            value = values.pop(name.rpartition(".")[2])
            if value is not None:
                changes[name] = value
        return with_values(settings, changes, self.leave_out)

    def choose(self, values: dict[str, Any], base: S | None) -> tuple[S, list[str]]:
        """Do as `take`, and return the words that give these settings again, too."""
        chosen = self.take(values, base)
        return chosen, self.repeated(chosen, base)

    def reply(self) -> Reply:
        """Return all settings with their explanations, as a settings file has them."""
        text = settings_toml(self.defaults, self.leave_out)
        known = list_settings(self.defaults, self.leave_out)
        data = {
            name: {"value": setting.value, "expected": setting.expected, "text": setting.text}
            for name, setting in known.items()
        }
        return Reply(data, text.rstrip(), list(known))

    def repeated(self, settings: S, base: S | None = None) -> list[str]:
        """Return the words of a command line that give these settings, from `base` on."""
        changed = changed_values(settings, self.leave_out, base)
        return [word for name, text in changed.items() for word in ("--set", f"{name}={text}")]

    def _option(self, full: str, setting: Any) -> inspect.Parameter:
        name = full.rpartition(".")[2]
        flag = f"--{name.replace('_', '-')}"
        is_bool = setting.hint is bool
        default = setting_text(setting.value) or "none"
        option = typer.Option(
            f"{flag}/--no-{flag[2:]}" if is_bool else flag,
            help=f"{setting.text or setting.expected} [default: {default}]",
            metavar=None if is_bool else "VALUE",
            rich_help_panel=_PANEL,
        )
        return _parameter(name, (bool if is_bool else str) | None, option, None)


def _parameter(name: str, kind: Any, option: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[kind, option], default=default
    )
