"""What ``poolctl blink`` is told about the trials, the session and the files to write."""

from __future__ import annotations

import inspect
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.frame.errors import InputMissingError, UsageError

if TYPE_CHECKING:
    from site_agent.eyeblink.session_labels import SessionLabels

_TRIALS, _LABELS, _OUTPUTS = "Conditioning", "Whose recording it is", "Outputs on request"


def _option(
    name: str, kind: Any, *, panel: str, text: str, default: Any = "", metavar: str | None = None
) -> Any:
    option = typer.Option(
        f"--{name.replace('_', '-')}",
        help=text,
        metavar=metavar,
        rich_help_panel=panel,
        show_default=False,
    )
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[kind, option], default=default
    )


OUTCOME_PARAMETERS = (
    _option(
        "trials",
        Path | None,
        default=None,
        panel=_TRIALS,
        text="Trials of a conditioning session: a CSV with trial_type, cs_onset_s, us_onset_s; or "
        "a log of TTL pulses. Of a recording, not of a --camera.",
        metavar="FILE",
    ),
    _option(
        "overlay",
        bool,
        default=False,
        panel=_OUTPUTS,
        text="The video with what was found in it; of one face, not with --all-faces.",
    ),
    _option(
        "nwb", bool, default=False, panel=_OUTPUTS, text="A file of Neurodata Without Borders."
    ),
    _option(
        "subject",
        str,
        panel=_LABELS,
        text="Gives the files BIDS names: sub-01_task-ebc_...",
        metavar="LABEL",
    ),
    _option(
        "session", str, panel=_LABELS, text="For BIDS names: sub-01_ses-02_...", metavar="LABEL"
    ),
    _option(
        "task",
        str,
        panel=_LABELS,
        text="ebc with trials, blink without, unless given.",
        metavar="LABEL",
    ),
    _option(
        "session_start",
        str,
        panel=_LABELS,
        text="When the recording began, for NWB; from the file when left out.",
        metavar="TIME",
    ),
    _option(
        "age",
        str,
        panel=_LABELS,
        text="Of the subject, for NWB: P21Y is 21 years.",
        metavar="DURATION",
    ),
    _option(
        "sex",
        str,
        default="U",
        panel=_LABELS,
        text="Of the subject, for NWB: F, M, O or U.",
        metavar="LETTER",
    ),
)
"""Options besides those that are made from settings."""


def session_labels(values: dict[str, Any]) -> SessionLabels:
    """Return the labels that the options gave.

    Raises
    ------
    UsageError
        A start that is no date and time.
    """
    from site_agent.eyeblink.session_labels import SessionLabels

    word = values["session_start"]
    try:
        start = datetime.fromisoformat(word) if word else None
    except ValueError:
        raise UsageError(
            f"--session-start {word!r}: expected a date and time such as 2026-05-04T13:45:00+02:00"
        ) from None
    names = ("subject", "session", "task", "age", "sex")
    return SessionLabels(**{name: values[name] for name in names}, start=start)


def requested_outputs(values: dict[str, Any]) -> frozenset[str]:
    """Return the names of the outputs asked for."""
    return frozenset(name for name in ("overlay", "nwb") if values[name])


def trial_file(values: dict[str, Any]) -> Path | None:
    """Return the file of trials, if one was named.

    Raises
    ------
    InputMissingError
    """
    path: Path | None = values["trials"]
    if path is not None and not path.is_file():
        raise InputMissingError(f"{path}: no such file")
    return path
