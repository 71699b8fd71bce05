"""The journal of an agent, on standard output: one line an event, of JSON or for people.

Every line of JSON has ``time`` (UTC, ISO 8601), ``level`` (``info``, ``warning``, ``error``),
``event`` and ``cycle`` (0 before the first one). What else it has depends on the event.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

from site_agent.plain_json import plain

Level = Literal["info", "warning", "error"]

SENTENCES: dict[str, str] = {
    "agent_started": "the agent has started with {config}; the pool is {pool}",
    "agent_stopped": "stopped: {reason}",
    "cycle_started": "cycle {cycle} begins for {site}",
    "cycle_finished": "cycle {cycle} took {took_s:.0f} s; uploads: {uploads}, "
    "contributions: {contributions}, failures: {failures}",
    "waiting": "waiting {seconds:.0f} s for the next cycle",
    "pool_unreachable": "the pool cannot be used now: {error}",
    "models_found": "{name}: found {found}, taken {taken}, new {new}",
    "model_fetched": "{name}: downloaded {address}",
    "model_refused": "{name}: left out {address}: {reason}",
    "merged": "{name}: merged by {method}, inputs: {inputs}",
    "evaluated": "{name}: {what} {model}: {metric} {value:.4g}",
    "up_to_date": "{name}: nothing is new; the best {metric} is {value:.4g}",
    "not_better": "{name}: not uploaded: {metric} {value:.4g} is not better by {margin} than "
    "{best:.4g} of {best_model}",
    "best_changed": "{name}: the best is now {what} {model}, {metric} {value:.4g}: {file}",
    "uploading": "{name}: uploading {size_bytes:,} bytes",
    "uploaded": "{name}: uploaded as {address}, {metric} {value:.4g}",
    "contributing": "round {round}: contributing to {base}; the deadline is {deadline:%F %R} UTC",
    "contributed": "round {round}: sent {sent_bytes:,} bytes",
    "round_refused": "round {round}: not taken part in: {reason}",
    "round_finished": "round {round}: finished as {result}",
    "failed": "{subject} failed: {error} ({hint})",
}
"""The events, for people; in braces what a line of JSON has under that key, besides others."""

_LEVELS: dict[str, Level] = {
    **dict.fromkeys(("pool_unreachable", "model_refused", "round_refused"), "warning"),
    "failed": "error",
}


@dataclass
class Journal:
    """Writes events.

    `for_people`: write sentences instead of JSON.
    """

    stream: TextIO | None
    least: Level = "info"
    for_people: bool = False
    clock: Callable[[], datetime] = field(default=lambda: datetime.now(UTC))
    cycle: int = 0

    def write(self, event: str, **values: Any) -> None:
        """Write one event, of those in `SENTENCES`."""
        level = _LEVELS.get(event, "info")
        order = ("info", "warning", "error")
        if self.stream is None or order.index(level) < order.index(self.least):
            return
        if self.for_people:
            line = self._sentence(event, level, values)
        else:
            line = self._json(event, level, values)
        self.stream.write(f"{line}\n")
        self.stream.flush()

    def _json(self, event: str, level: Level, values: dict[str, Any]) -> str:
        line = {
            "time": _utc(self.clock(), "milliseconds"),
            "level": level,
            "event": event,
            "cycle": self.cycle,
            **{
                key: _utc(value, "seconds") if isinstance(value, datetime) else plain(value)
                for key, value in values.items()
            },
        }
        return json.dumps(line, ensure_ascii=False, allow_nan=False)

    def _sentence(self, event: str, level: Level, values: dict[str, Any]) -> str:
        said = SENTENCES[event].format(cycle=self.cycle, **values).removesuffix(" ()")
        # A name from the pool must not write on the terminal.
        shown = "".join(each if each.isprintable() else " " for each in said)
        mark = "" if level == "info" else f"{level.capitalize()}: "
        return f"{self.clock().astimezone():%H:%M:%S}  {mark}{shown}"


def _utc(moment: datetime, precision: str) -> str:
    return moment.astimezone(UTC).isoformat(timespec=precision).replace("+00:00", "Z")
