"""How lines of the log look: for people, or one JSON object a line for programs."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Any

from pool_server.settings import PoolSettings

TEXT = "%(asctime)s %(levelname)s %(name)s %(message)s"


class JsonFormatter(logging.Formatter):
    """One object a line: ``time``, ``level``, ``logger``, and ``message`` or an event's fields.

    What is logged as a JSON object (a request, with its `request_id`) becomes part of the line.
    """

    def format(self, record: logging.LogRecord) -> str:
        message = record.getMessage()
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
        }
        fields = _object(message)
        line |= {"message": message} if fields is None else fields
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def set_up_logging(settings: PoolSettings) -> None:
    """Send the log of this process to its error output, in the form that the settings name."""
    handler = logging.StreamHandler()
    as_json = settings.log_format == "json"
    handler.setFormatter(JsonFormatter() if as_json else logging.Formatter(TEXT))
    logging.basicConfig(handlers=[handler])


def _object(message: str) -> dict[str, Any] | None:
    if not message.startswith("{"):
        return None
    try:
        found = json.loads(message)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
