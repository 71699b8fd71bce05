"""Labels: what an uploader says of a version, as words."""

from __future__ import annotations

import math
import re
from typing import Any

from sqlalchemy import Double, ForeignKey, Index, String
from sqlalchemy.orm import Mapped, mapped_column

from pool_server.database.records.base import NameText, Record

_NUMBER = re.compile(r"^[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?$")


def number_in(value: str) -> float | None:
    """Return a label's value as a number; None for one that is none, or not finite."""
    number = float(value) if _NUMBER.fullmatch(value) else math.inf
    return number if math.isfinite(number) else None


def _number_of_row(context: Any) -> float | None:
    return number_in(context.get_current_parameters()["value"])


class LabelRecord(Record):
    """``key = value`` of one version.

    `number` is the value where that is a number, so that it can be compared as one; it is filled
    in with every insert and update that SQLAlchemy makes.
    """

    __tablename__ = "labels"
    __table_args__ = (
        Index(None, "key", "value", "version_id"),
        Index(None, "key", "number", "version_id"),
    )

    version_id: Mapped[int] = mapped_column(ForeignKey("model_versions.id"), primary_key=True)
    key: Mapped[NameText] = mapped_column(primary_key=True)
    value: Mapped[str] = mapped_column(String(256))
    number: Mapped[float | None] = mapped_column(
        Double, default=_number_of_row, onupdate=_number_of_row
    )
