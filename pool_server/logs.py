"""The log: lines for people, or one JSON object a line for programs.

Each line logged while a request is served carries the request's identifier, also from the
threads that serve it: `request_id` is set around the request, and a thread that works on its
behalf begins with `in_this_context`.
"""

import json
import logging
from collections.abc import Callable
from contextvars import ContextVar, copy_context
from datetime import UTC, datetime
from functools import partial
from typing import ParamSpec, TypeVar

from pool_server.settings import PoolSettings

TEXT = "%(asctime)s %(levelname)s %(name)s%(of_request)s %(message)s"

# Of the request that is being served; empty for what the server does by itself.
request_id: ContextVar[str] = ContextVar("request_id", default="")

P = ParamSpec("P")
T = TypeVar("T")


class RequestIdFilter(logging.Filter):
    """Gives each line the identifier of the request that it was logged for."""

    def filter(self, record: logging.LogRecord) -> bool:
        identifier = request_id.get()
        record.request_id = identifier
        record.of_request = f" [{identifier}]" if identifier else ""
        return True


class JsonFormatter(logging.Formatter):
    """One object a line: ``time``, ``level``, ``logger``, and ``message`` or an event's fields.

    ``request_id`` is there for lines logged while a request was served. A line logged with
    ``extra={"fields": ...}`` (the request itself) has these in place of the message.
    """

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
        }
        of_request = getattr(record, "request_id", "")
        if of_request:
            line["request_id"] = of_request
        line |= getattr(record, "fields", None) or {"message": record.getMessage()}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def set_up_logging(settings: PoolSettings) -> None:
    """Send the log of this process to its error output, in the form that the settings name."""
    logging.basicConfig(handlers=[prepare_handler(logging.StreamHandler(), settings)])


def prepare_handler(handler: logging.Handler, settings: PoolSettings) -> logging.Handler:
    """Set a handler's format from the settings, and add request identifiers."""
    as_json = settings.log_format == "json"
    handler.setFormatter(JsonFormatter() if as_json else logging.Formatter(TEXT))
    handler.addFilter(RequestIdFilter())
    if not settings.log_requests:
        handler.addFilter(is_worth_a_line)
    return handler


def is_worth_a_line(record: logging.LogRecord) -> bool:
    """Return whether a record is a fault, or not of a single request."""
    return record.levelno >= logging.WARNING or record.name != "pool_server.requests"


def in_this_context(work: Callable[P, T]) -> Callable[P, T]:
    """Return `work` for a new thread, with its lines under the request of this one."""
    return partial(copy_context().run, work)
