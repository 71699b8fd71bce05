"""Text on the standard streams: safe to print, coloured, fitted to their width, or JSON."""

import codecs
import json
import os
import re
import shutil
import sys
from collections.abc import Sequence
from textwrap import wrap
from typing import Any, TextIO

from site_agent.plain_json import plain

# Marks of direction and characters without width: they make a text look like another.
_DECEPTIVE = r"\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
# Lines and tabs are for people; everything else among these is for terminals.
_CONTROLS = re.compile(rf"\r(?!\n)|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f{_DECEPTIVE}]")
# Those that JSON would let through.
_LATE_CONTROLS = re.compile(rf"[\x7f-\x9f{_DECEPTIVE}]")


def print_json(envelope: dict[str, Any]) -> None:
    """Write one JSON object to standard output.

    Numbers that JSON does not have (NaN, infinities) become null.
    """
    text = json.dumps(plain(envelope), ensure_ascii=False, allow_nan=False, indent=2, default=str)
    # No terminal takes it for a command.
    text = _LATE_CONTROLS.sub(lambda match: f"\\u{ord(match[0]):04x}", text) + "\n"
    if codecs.lookup(sys.stdout.encoding or "utf-8").name != "utf-8":
        text = re.sub(r"[^\x00-\x7f]+", lambda match: json.dumps(match[0])[1:-1], text)
    sys.stdout.write(text)
    sys.stdout.flush()


def printable(text: str, stream: TextIO) -> str:
    """Return text as it may be printed: for a terminal with control characters written out.

    So are marks of direction and characters without width.

    Descriptions, cards and messages are words of other sites, and of a pool that need not mean
    well; a terminal would obey such characters.
    """
    if not stream.isatty():
        return text
    return _CONTROLS.sub(_write_out, text)


def _write_out(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def styled(text: str, ansi: str, stream: TextIO) -> str:
    """Colour `text` where the stream is a terminal and ``NO_COLOR`` is not set."""
    if os.environ.get("NO_COLOR") or not stream.isatty():
        return text
    return f"\x1b[{ansi}m{text}\x1b[0m"


def print_labelled(label: str, ansi: str, message: str) -> None:
    """Write a message to standard error, beginning with a coloured word."""
    text = fitted(f"{label} {printable(message, sys.stderr)}", sys.stderr)
    print(
        f"{styled(label, ansi, sys.stderr)}{text.removeprefix(label)}", file=sys.stderr, flush=True
    )


# Lines and tables as wide as the stream. Words and numbers are never broken: commands take them.
_SHORT_CELL, _LONGEST_NUMBER = 16, 40
_NUMBERS = tuple("0123456789+-.[")
_GAP = "  "
_COMMAND = re.compile(r"(\d+\.|\$)? *([A-Z_]+=\S+ )*(\S*/)?poolctl .*")
_ENDS_IN_COMMAND = re.compile(r"(.*:) (poolctl (?:[^:;,]|:/)+)")


def width_of(stream: TextIO) -> int | None:
    """Return the columns of a terminal, None of a file or a pipe.

    A file or a pipe is read by programs, which need each line in one piece.
    """
    if not stream.isatty():
        return None
    return max(shutil.get_terminal_size().columns, 40)


def fitted(text: str, stream: TextIO) -> str:
    """Return text with lines wrapped at blanks, and commands kept runnable by a shell."""
    width = width_of(stream)
    if width is None:
        return text
    return "\n".join(_wrapped(line, width) for line in text.split("\n"))


def _wrapped(line: str, width: int) -> str:
    if len(line) <= width or line.lstrip().startswith(("{", "|")):
        return line
    if match := _ENDS_IN_COMMAND.fullmatch(line):
        return f"{_wrapped(match[1], width)}\n{_wrapped('  ' + match[2], width)}"
    indent = " " * (len(line) - len(line.lstrip()))
    is_command = _COMMAND.fullmatch(line.lstrip()) is not None
    lines = wrap(
        line.lstrip(),
        width - 2 * is_command,
        initial_indent=indent,
        subsequent_indent=indent + "    " * is_command,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return (" \\\n" if is_command else "\n").join(lines)


def table_lines(
    headings: Sequence[str], rows: Sequence[Sequence[str]], width: int | None
) -> tuple[list[str], Sequence[str]]:
    """Return the lines of a table, those of its headings first, and the headings left out.

    Where the lines would be longer than `width`, words are wrapped at blanks; where that is not
    enough, columns are left out, the last first. The first column stays, and so does the second
    of two.
    """
    cells = [list(headings), *[list(row) for row in rows]]
    kept = list(range(len(headings)))
    while width is not None and len(headings) > 2 and len(kept) > 1:
        if sum(_least(cells, column) for column in kept) + len(_GAP) * (len(kept) - 1) <= width:
            break
        kept.pop()
    widths = {column: max(len(line[column]) for line in cells) for column in kept}
    if width is not None:
        room = width - len(_GAP) * (len(kept) - 1)
        least = {column: _least(cells, column) for column in kept}
        if sum(least.values()) > room:
            # Next to a digest even short names wrap.
            least[0] = max(len(word) for line in cells for word in ["", *line[0].split()])
        while sum(widths.values()) > room:
            wide = [column for column in kept if widths[column] > least[column]]
            if not wide:
                break
            widths[max(wide, key=lambda column: widths[column])] -= 1
    lines = []
    for line in cells:
        parts = [_cell_lines(line[column], widths[column]) for column in kept]
        for number in range(max(map(len, parts), default=0)):
            texts = [part[number] if number < len(part) else "" for part in parts]
            padded = (text.ljust(widths[c]) for text, c in zip(texts, kept, strict=True))
            lines.append(_GAP.join(padded).rstrip())
    return lines, headings[len(kept) :]


def _least(cells: Sequence[Sequence[str]], column: int) -> int:
    """Return the least width of a column: headings and sentences wrap, numbers and units do not."""
    heading, *texts = (line[column] for line in cells)
    longest_word = max((len(word) for word in heading.split()), default=0)
    return max([longest_word, *(_least_of(text) for text in texts)])


def _least_of(text: str) -> int:
    if len(text) <= (_LONGEST_NUMBER if text.startswith(_NUMBERS) else _SHORT_CELL):
        return len(text)
    return max(_SHORT_CELL, *(len(word) for word in text.split()))


def _cell_lines(text: str, width: int) -> list[str]:
    if len(text) <= width:
        return [text]
    return wrap(text, width, break_long_words=False, break_on_hyphens=False) or [""]
