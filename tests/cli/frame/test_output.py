"""Where a command's answer goes."""

import json
import os
import pty
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from cli.frame.errors import UsageError, report_failure
from cli.frame.output import Conventions, Invocation, Reply, TableText, markdown_parts
from cli.frame.terminal import print_json
from pool_server.wire.people import SiteResponse
from site_agent.wording import age_words
from tests.cli.conftest import Terminal


@dataclass(frozen=True)
class Pair:
    first: Path
    second: tuple[float, ...]


def test_everything_that_commands_return_becomes_json(capsys: pytest.CaptureFixture[str]) -> None:
    site = SiteResponse(
        name="a", display_name="A", contact="", created_at=datetime(2026, 1, 1, tzinfo=UTC)
    )
    value = {
        "site": site,
        "pair": Pair(Path("x/y"), (1.5, float("nan"), float("inf"))),
        "array": np.array([[1, 2]], dtype=np.uint8),
        "number": np.float64(0.25),
        1: None,
    }
    print_json({"data": value})
    assert json.loads(capsys.readouterr().out)["data"] == {
        "site": {
            "name": "a",
            "display_name": "A",
            "contact": "",
            "created_at": "2026-01-01T00:00:00Z",
            "suspended": False,
        },
        "pair": {"first": "x/y", "second": [1.5, None, None]},
        "array": [[1, 2]],
        "number": 0.25,
        "1": None,
    }


def test_the_three_forms_of_an_answer(capsys: pytest.CaptureFixture[str]) -> None:
    reply = Reply({"n": 2}, [TableText(["name", "n"], [["long name", "1"]]), "two"], ["a", "b"])
    Invocation(Conventions()).print_reply(reply)
    assert capsys.readouterr().out == "name       n\nlong name  1\ntwo\n"
    Invocation(Conventions(quiet=True)).print_reply(reply)
    assert capsys.readouterr().out == "a\nb\n"
    Invocation(Conventions(as_json=True)).print_reply(reply)
    assert json.loads(capsys.readouterr().out) == {"success": True, "data": {"n": 2}}


def test_notes_and_warnings_stay_out_of_the_data(capsys: pytest.CaptureFixture[str]) -> None:
    loud = Invocation(Conventions())
    loud.note("by the way")
    loud.warn("look out")
    Invocation(Conventions(quiet=True)).note("not heard")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "by the way" in captured.err
    assert "look out" in captured.err
    assert "not heard" not in captured.err


def test_no_progress_bar_where_nobody_looks(capsys: pytest.CaptureFixture[str]) -> None:
    with Invocation(Conventions()).progress("work") as report:
        report(0.5, "half")
        report(None, "who knows")
    assert capsys.readouterr().err == ""


def on_terminal(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> str:
    """Return the bytes sent to a terminal while `act` writes to both outputs."""
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as terminal, monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", terminal)
        patched.setattr(sys, "stderr", terminal)
        act()
    sent = b""
    with suppress(OSError):  # the terminal is closed
        while part := os.read(ours, 65536):
            sent += part
    os.close(ours)
    return sent.decode()


def test_words_of_others_command_no_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TERM", "dumb")
    text = "gone\x1b[2J\x9b2J\x07\rcome\r\nnext\tline\u202eenil\u200b"
    said = Invocation(Conventions())
    reply = Reply({"words": text}, [text, TableText([text], [[text]], text)], [text])
    for act in (
        lambda: said.print_reply(reply),
        lambda: Invocation(Conventions(quiet=True)).print_reply(reply),
        lambda: said.note(text),
        lambda: said.warn(text),
        lambda: report_failure(UsageError(text), []),
    ):
        sent = on_terminal(monkeypatch, act)
        assert "\\x1b[2J\\x9b2J\\x07\\x0dcome" in sent
        assert "line\\u202eenil\\u200b" in sent
        assert not set(sent) & set("\x1b\x9b\x07\u202e\u200b")
    sent = on_terminal(monkeypatch, lambda: print_json({"words": text}))
    assert not set(sent) & set("\x1b\x9b\x07\u202e\u200b")
    assert json.loads(sent) == {"words": text}
    # A file gets what was written, to be sent back as it is.
    Invocation(Conventions()).print_reply(Reply({}, text))
    assert capsys.readouterr().out == text + "\n"


def test_ages() -> None:
    now = datetime(2026, 3, 10, tzinfo=UTC)
    spans = (timedelta(seconds=59), timedelta(minutes=61), timedelta(hours=47), timedelta(days=400))
    assert [age_words(now - span, now) for span in spans] == ["0 min", "1 h", "47 h", "400 d"]


LABELS = "age_group=infant camera=webcam images=1200 lighting=infrared population=infant"


def printed_at(columns: int, reply: Reply, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("COLUMNS", str(columns))
    terminal = Terminal()
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", terminal)
        Invocation(Conventions()).print_reply(reply)
    lines = terminal.getvalue().splitlines()
    assert max(map(len, lines)) <= columns
    return lines


def test_labels_wrap_and_the_last_columns_give_way(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = ["address", "labels", "score", "state"]
    row = ["pool://site-a/face-68@12", LABELS, "0.0467 [0.0412, 0.0523]", "available"]
    reply = Reply({}, TableText(columns, [row]))
    wide = printed_at(80, reply, monkeypatch)
    assert all(cell in wide[1] for cell in (row[0], row[2], row[3]))
    assert all(word in "\n".join(wide).split() for word in LABELS.split())
    narrow = printed_at(70, reply, monkeypatch)
    assert narrow[0].split() == ["address", "labels", "score"]
    assert narrow[-1] == "not shown: state (use a wider terminal, or --json)"
    narrower = printed_at(50, reply, monkeypatch)
    assert narrower[0].split() == ["address", "labels"]
    assert all(word in "\n".join(narrower).split() for word in LABELS.split())


@pytest.mark.parametrize("count", [3, 4, 13])
def test_no_number_is_broken(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"mean of group {number}" for number in range(count)]
    cells = [f"+{number}.12345e-05 to 3" for number in range(count)]
    lines = printed_at(80, Reply({}, TableText(["", *names], [["row", *cells]])), monkeypatch)
    shown = next(line for line in lines if line.startswith("row"))
    missing = [cell for cell in cells if cell not in shown]
    assert len(missing) <= max(0, count - 3)
    assert bool(missing) == any("not shown:" in line for line in lines)


def test_names_wrap_beside_a_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [["digest", "1f" * 32], ["max pyramid levels", "1000"], ["window width px", "80"]]
    lines = printed_at(80, Reply({}, TableText(["what", "value"], rows)), monkeypatch)
    assert lines[1].split() == ["digest", "1f" * 32]
    grouped = " ".join(["13001d0e"] * 8)
    lines = printed_at(80, Reply({}, TableText(["what", "value"], [["key", grouped]])), monkeypatch)
    assert " ".join(lines[1:]).split() == ["key", *grouped.split()]


def test_tables_of_markdown_fit_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    line = "| fedavg | 9.74 |  | 1.00 | 0.0 |"
    heading = "| rule | error deg | interval deg | price | times |"
    text = f"# Study\n\n{heading}\n|---|---:|---:|---:|---:|\n{line}\nEnd"
    lines = printed_at(80, Reply({}, markdown_parts(text)), monkeypatch)
    assert lines[-2].split() == ["fedavg", "9.74", "1.00", "0.0"]
    assert not any("|" in line for line in lines)


def test_commands_in_prose_can_be_run_when_wrapped(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = "POOL_HOME=site-a poolctl upload " + " ".join(f"site-a/file-{n}" for n in range(12))
    for form in (f"  {arguments}", f"$ {arguments}"):
        lines = printed_at(80, Reply({}, form), monkeypatch)
        assert all(line.endswith(" \\") for line in lines[:-1])
        assert " ".join(line.removesuffix(" \\").strip() for line in lines) == form.strip()
    told = "to remove them: poolctl cache rm pool://site-c/eyes-merged@2 pool://site-a/eyes@1 ab"
    assert printed_at(80, Reply({}, told), monkeypatch) == [
        "to remove them:",
        "  poolctl cache rm pool://site-c/eyes-merged@2 pool://site-a/eyes@1 ab",
    ]


def test_a_pipe_gets_every_column_on_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    Invocation(Conventions()).print_reply(Reply({}, TableText(["a", "b", "c"], [[LABELS] * 3])))
    assert capsys.readouterr().out.splitlines()[1] == "  ".join([LABELS] * 3)
