"""The journal of an agent, on standard output: one line an event, of JSON or for people.

Every line of JSON has ``time`` (UTC, ISO 8601), ``level`` (``info``, ``warning``, ``error``),
``event`` and ``cycle`` (0 before the first one). What else it has depends on the event: `EVENTS`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

from site_agent.plain_json import plain

Level = Literal["info", "warning", "error"]

COMMON_KEYS = ("time", "level", "event", "cycle")


@dataclass(frozen=True)
class EventKind:
    """The meaning of an event, and its keys besides those that all have."""

    meaning: str
    keys: tuple[str, ...]
    level: Level = "info"


EVENTS: dict[str, EventKind] = {
    "agent_started": EventKind(
        "The agent has its workspace.", ("config", "workspace", "pool", "version", "once")
    ),
    "agent_stopped": EventKind("It ends.", ("reason",)),
    "cycle_started": EventKind("A cycle begins.", ("site",)),
    "cycle_finished": EventKind(
        "A cycle is done.", ("took_s", "uploads", "contributions", "failures")
    ),
    "waiting": EventKind("Nothing is done until the next cycle.", ("seconds",)),
    "pool_unreachable": EventKind(
        "The pool did not answer, or does not know the token; the cycle is tried again later.",
        ("error",),
        "warning",
    ),
    "models_found": EventKind(
        "What the pool has for a [[merge]] table, and what of it is taken.",
        ("name", "found", "taken", "new", "refused_before"),
    ),
    "model_fetched": EventKind(
        "A sub-model is here.", ("name", "address", "digest", "received_bytes")
    ),
    "model_refused": EventKind(
        "A model is left out, now and in later cycles.",
        ("name", "address", "digest", "reason"),
        "warning",
    ),
    "merged": EventKind("Models were merged.", ("name", "method", "inputs", "digest")),
    "evaluated": EventKind(
        "A model was scored on the validation faces; `what`: own, published, input or merged.",
        ("name", "what", "model", "digest", "metric", "value"),
    ),
    "up_to_date": EventKind(
        "Nothing is new for a [[merge]] table; `value`: of the best model known.",
        ("name", "metric", "value"),
    ),
    "not_better": EventKind(
        "The merged model is not better by the margin than `best`, and is not uploaded.",
        ("name", "metric", "value", "best", "best_model", "margin"),
    ),
    "best_changed": EventKind(
        "Another model is the best; it lies in the workspace.",
        ("name", "what", "model", "digest", "metric", "value", "file"),
    ),
    "uploading": EventKind("A merged model goes to the pool.", ("name", "digest", "size_bytes")),
    "uploaded": EventKind(
        "It is in the pool.", ("name", "address", "digest", "sent_bytes", "metric", "value")
    ),
    "contributing": EventKind(
        "A round is taken part in; this may take minutes.", ("round", "base", "deadline")
    ),
    "contributed": EventKind(
        "The pool has the contribution.", ("round", "digest", "size_bytes", "sent_bytes")
    ),
    "round_refused": EventKind(
        "A round is not taken part in, unless the data or the [rounds] table change.",
        ("round", "reason"),
        "warning",
    ),
    "round_finished": EventKind("The pool has combined a round.", ("round", "result")),
    "failed": EventKind(
        "Something failed and is tried again in the next cycle; the rest goes on. `subject`: the "
        "name of a [[merge]] table, or a round.",
        ("subject", "error", "hint"),
        "error",
    ),
}

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
"""The events for people."""


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
        """Write one event; its keys have to be those of `EVENTS`."""
        kind = EVENTS[event]
        assert set(values) == set(kind.keys), f"{event}: {sorted(values)}"
        order = ("info", "warning", "error")
        if self.stream is None or order.index(kind.level) < order.index(self.least):
            return
        if self.for_people:
            line = self._sentence(event, kind.level, values)
        else:
            line = self._json(event, kind, values)
        self.stream.write(f"{line}\n")
        self.stream.flush()

    def _json(self, event: str, kind: EventKind, values: dict[str, Any]) -> str:
        line = {
            "time": _utc(self.clock(), "milliseconds"),
            "level": kind.level,
            "event": event,
            "cycle": self.cycle,
            **{
                key: _utc(value, "seconds") if isinstance(value, datetime) else plain(value)
                for key, value in ((key, values[key]) for key in kind.keys)
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
