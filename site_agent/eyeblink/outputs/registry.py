"""The outputs of the eyeblink analysis as a table, and writing them: all or nothing."""

import errno
import importlib.util
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from site_agent.errors import InvalidInputError, MissingExtraError, writing_to
from site_agent.eyeblink.outputs import json_files
from site_agent.eyeblink.outputs.overlay import write_overlay
from site_agent.eyeblink.outputs.report import write_report
from site_agent.eyeblink.outputs.tables import write_blinks, write_frames, write_trials
from site_agent.eyeblink.session import AnalysedSession
from site_agent.plain_json import write_json
from site_agent.work import Progress, no_progress


@dataclass(frozen=True)
class BlinkOutput:
    """One file of an analysed session: a row of `OUTPUTS`, and a function that writes it.

    Laws:

    1. `write` creates exactly the file that it is given, and changes nothing else;
    2. it accepts a session without blinks, without faces, and of a single frame;
    3. its memory does not grow with the length of the session beyond the session's own arrays.
    """

    name: str
    file_name: str
    write: Callable[[AnalysedSession, Path], None]
    essential: bool = False
    """Without it there are no results. The failure of another output is a warning."""
    needs_trials: bool = False
    library: str = ""
    extra: str = ""

    @property
    def on_request(self) -> bool:
        return bool(self.library)

    def applies_to(self, session: AnalysedSession) -> bool:
        if self.needs_trials and session.conditioning is None:
            return False
        return not self.on_request or self.name in session.settings.outputs


def _write_nwb(session: AnalysedSession, path: Path) -> None:
    try:
        from site_agent.eyeblink.outputs.nwb import write_nwb
    except ModuleNotFoundError as error:
        raise MissingExtraError("pynwb", "nwb") from error
    write_nwb(session, path)


def _json_of(
    describe: Callable[[AnalysedSession], Mapping[str, Any]],
) -> Callable[[AnalysedSession, Path], None]:
    return lambda session, path: write_json(path, describe(session))


OUTPUTS: tuple[BlinkOutput, ...] = (
    BlinkOutput("frames", "frames.csv", write_frames, essential=True),
    BlinkOutput("blinks", "blinks.csv", write_blinks, essential=True),
    BlinkOutput("trials", "trials.csv", write_trials, essential=True, needs_trials=True),
    BlinkOutput("overlay", "overlay.mp4", write_overlay, library="av", extra="vision"),
    BlinkOutput("nwb", "session.nwb", _write_nwb, library="pynwb", extra="nwb"),
    BlinkOutput("report", "report.html", write_report),
    BlinkOutput("session", "session.json", _json_of(json_files.describe_results), essential=True),
    BlinkOutput(
        "datapackage", "datapackage.json", _json_of(json_files.describe_package), essential=True
    ),
    BlinkOutput(
        "provenance", "provenance.json", _json_of(json_files.describe_provenance), essential=True
    ),
)
"""In the order of writing: outputs that may fail come before those that report the failure. The
provenance comes last: a folder that has it is complete."""

ON_REQUEST: Mapping[str, BlinkOutput] = {
    output.name: output for output in OUTPUTS if output.on_request
}

DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


@dataclass(frozen=True)
class WrittenOutputs:
    """Files written, by the output's name, and the session's warnings with those of writing."""

    files: Mapping[str, Path]
    warnings: tuple[str, ...]


def check_requested(names: Iterable[str]) -> None:
    """Find out before the analysis whether the outputs asked for can be written at all."""
    for name in sorted(names):
        if name not in ON_REQUEST:
            raise InvalidInputError(
                f"there is no output {name!r} on request; expected {', '.join(ON_REQUEST)}"
            )
        output = ON_REQUEST[name]
        if importlib.util.find_spec(output.library) is None:
            raise MissingExtraError(output.library, output.extra)


def write_outputs(
    session: AnalysedSession,
    folder: Path,
    *,
    outputs: Sequence[BlinkOutput] = OUTPUTS,
    progress: Progress = no_progress,
) -> WrittenOutputs:
    """Write all outputs into `folder`.

    They are written to a temporary folder next to it first. A new folder then appears at once; in
    an existing one each file is replaced, the provenance last, and files that only an earlier
    analysis of the session wrote are removed.
    """
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise InvalidInputError(f"{folder}: is a file, expected a folder for the results")
    with writing_to(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(
            prefix=f".{folder.name[:60]}.",
            suffix=".partial",
            dir=folder.parent,
            ignore_cleanup_errors=True,
        ) as temporary:
            # Inside it, because a temporary folder is closed to all but its owner.
            content = Path(temporary) / "content"
            content.mkdir()
            session, written = _write_each(session, content, outputs, progress)
            _move(content, folder, [output.file_name for output in outputs])
    files = {output.name: folder / output.file_name for output in written}
    return WrittenOutputs(files, session.warnings)


def _write_each(
    session: AnalysedSession, content: Path, outputs: Sequence[BlinkOutput], progress: Progress
) -> tuple[AnalysedSession, list[BlinkOutput]]:
    applicable = [output for output in outputs if output.applies_to(session)]
    written: list[BlinkOutput] = []
    for number, output in enumerate(applicable):
        path = content / output.file_name
        progress(number / len(applicable), f"writing {path.name}")
        try:
            output.write(session, path)
        # Whatever a library raises: hours of analysis are not lost for a picture.
        except Exception as error:
            disk_full = isinstance(error, OSError) and error.errno in DISK_FULL
            if output.essential or disk_full:
                raise
            path.unlink(missing_ok=True)
            warning = f"{path.name} was not written: {str(error) or type(error).__name__}"
            session = replace(session, warnings=(*session.warnings, warning))
        else:
            written.append(output)
    return session, written


def _move(content: Path, folder: Path, known: Sequence[str]) -> None:
    """Bring the files to their place; `known` are all that an analysis of it may have left."""
    if not folder.exists():
        content.rename(folder)
        return
    # While there is no provenance the folder is not complete.
    for path in reversed(known):
        if not (content / path).exists():
            (folder / path).unlink(missing_ok=True)
    (folder / known[-1]).unlink(missing_ok=True)
    for path in known:
        if (content / path).exists():
            (content / path).replace(folder / path)
