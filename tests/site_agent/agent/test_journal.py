"""The sentences of an agent's journal."""

import io
import string
from datetime import UTC, datetime
from typing import Any

import pytest

from site_agent.agent.workspace import SENTENCES, Journal

VALUES: dict[str, Any] = {
    "deadline": datetime(2026, 3, 8, 12, 0, tzinfo=UTC),
    "value": float("nan"),
    "best": 0.07,
    **dict.fromkeys(("took_s", "seconds", "size_bytes", "sent_bytes", "received_bytes"), 12_345),
}


@pytest.mark.parametrize("event", SENTENCES)
def test_every_event_is_a_line_for_people(event: str) -> None:
    said = io.StringIO()
    keys = {name for _, name, *_ in string.Formatter().parse(SENTENCES[event]) if name} - {"cycle"}
    values = {key: VALUES.get(key, f"some {key}\n\x1b[2J") for key in keys}
    Journal(said, for_people=True).write(event, **values)
    [line] = said.getvalue().splitlines()
    assert "{" not in line
    assert "\x1b" not in line
    assert ("Error: " in line) == (event == "failed")
    assert ("Warning: " in line) == (event.endswith("_refused") or event == "pool_unreachable")


def test_a_failure_without_a_hint_ends_with_the_error() -> None:
    said = io.StringIO()
    Journal(said, for_people=True).write("failed", subject="face", error="no faces", hint="")
    assert said.getvalue().endswith("  Error: face failed: no faces\n")
