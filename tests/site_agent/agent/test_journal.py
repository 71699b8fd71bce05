"""What an agent says to people."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from typing import Any

import pytest

from site_agent.agent.journal import EVENTS, SENTENCES, Journal

VALUES: dict[str, Any] = {
    "deadline": datetime(2026, 3, 8, 12, 0, tzinfo=UTC),
    "value": float("nan"),
    "best": 0.07,
    **dict.fromkeys(("took_s", "seconds", "size_bytes", "sent_bytes", "received_bytes"), 12_345),
}


@pytest.mark.parametrize("event", EVENTS)
def test_every_event_is_a_line_for_people(event: str) -> None:
    said = io.StringIO()
    values = {key: VALUES.get(key, f"some {key}\n\x1b[2J") for key in EVENTS[event].keys}
    Journal(said, for_people=True).write(event, **values)
    [line] = said.getvalue().splitlines()
    assert "{" not in line
    assert "\x1b" not in line
    assert ("Warning: " in line, "Error: " in line) == (
        EVENTS[event].level == "warning",
        EVENTS[event].level == "error",
    )


def test_a_failure_without_a_hint_ends_with_the_error() -> None:
    assert set(SENTENCES) == set(EVENTS)
    said = io.StringIO()
    Journal(said, for_people=True).write("failed", subject="face", error="no faces", hint="")
    assert said.getvalue().endswith("  Error: face failed: no faces\n")
