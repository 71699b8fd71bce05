"""An icon on the desktop that opens the app."""

import shlex
import sys
from pathlib import Path

from pool_server import look
from site_agent.errors import InvalidInputError, writing_to
from site_agent.work.processes import start

_OPEN = "from cli.app import open_from_icon; open_from_icon()"
# The values come by variables: PowerShell would read quotes and dollars within its script.
_MAKE_LINK = (
    "$link = (New-Object -ComObject WScript.Shell).CreateShortcut($env:LINK); "
    "$link.TargetPath = $env:PROGRAM; $link.Arguments = $env:ARGUMENTS; $link.Save()"
)


def write_shortcut(desktop: Path) -> Path:
    """Put an icon into a folder: of the kind that the system knows."""
    if not desktop.is_dir():
        raise InvalidInputError(f"{desktop}: there is no desktop here")
    with writing_to(desktop):
        if sys.platform == "win32":
            path = desktop / "poolctl.lnk"
            _write_link(path)
        elif sys.platform == "darwin":
            path = desktop / "poolctl.command"
            command = f"exec {shlex.quote(sys.executable)} -P -c {shlex.quote(_OPEN)}"
            _write_program(path, f"#!/bin/sh\n{command}\n")
        else:
            path = desktop / "poolctl.desktop"
            _write_program(
                path,
                "[Desktop Entry]\nType=Application\nName=poolctl\nComment=Find blinks in videos\n"
                f"Exec={_quoted(sys.executable)} -P -c {_quoted(_OPEN)}\n"
                f"Icon={look.FOLDER / 'mark.svg'}\nTerminal=false\n",
            )
    return path


def _write_program(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)


def _quoted(text: str) -> str:
    """Quote a word by the two rules of desktop entries: of a command, then of a value."""
    inner = "".join(f"\\{letter}" if letter in '"`$\\' else letter for letter in text)
    return '"' + inner.replace("\\", "\\\\").replace("%", "%%") + '"'


def _write_link(path: Path) -> None:
    program = Path(sys.executable).with_name("pythonw.exe")
    link = {"LINK": str(path), "PROGRAM": str(program), "ARGUMENTS": f'-P -c "{_OPEN}"'}
    process = start(["powershell", "-NoProfile", "-Command", _MAKE_LINK], environment=link)
    output, _ = process.communicate()
    if process.returncode:
        reason = output.decode(errors="replace").strip()
        raise InvalidInputError(f"{path}: Windows made no shortcut: {reason}")
