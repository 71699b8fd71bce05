"""What both databases can do, but say differently.

Each is one text for any number of values, so that neither SQLAlchemy nor the database has to
read it anew for every request.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Dialect, Integer, Text, bindparam
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import NullType, TypeDecorator, TypeEngine


class _Values(TypeDecorator[Sequence[Any]]):
    """Any number of values as one value of a statement: a JSON list.

    PostgreSQL has arrays, but its driver takes ten times as long to write one of a thousand texts.
    """

    impl = Text
    cache_ok = True

    def process_bind_param(
        self,
        value: Sequence[Any] | None,
        dialect: Dialect,  # noqa: ARG002 - SQLAlchemy gives it
    ) -> str:
        return json.dumps(list(value or ()))


class _Among(FunctionElement[bool]):
    # To a Boolean SQLAlchemy adds ``= 1`` on SQLite, which then does not use an index.
    type: TypeEngine[Any] = NullType()
    inherit_cache = True


def among(column: Any, name: str) -> ColumnElement[bool]:
    """Return the condition that `column` is one of the values in the parameter `name`.

    For columns of texts and of whole numbers.
    """
    return _Among(column, bindparam(name, type_=_Values()))


@compiles(_Among, "sqlite")
def _among_on_sqlite(element: _Among, compiler: SQLCompiler, **options: Any) -> str:
    column, values = (compiler.process(each, **options) for each in element.clauses)
    return f"{column} IN (SELECT value FROM json_each({values}))"


@compiles(_Among, "postgresql")
def _among_on_postgresql(element: _Among, compiler: SQLCompiler, **options: Any) -> str:
    column, values = (compiler.process(each, **options) for each in element.clauses)
    kind = "bigint" if isinstance(next(iter(element.clauses)).type, Integer) else "text"
    elements = f"json_array_elements_text(CAST({values} AS json))"
    return f"{column} = ANY (ARRAY(SELECT CAST({elements} AS {kind})))"
