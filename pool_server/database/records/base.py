"""The base of all tables, and their types of columns."""

from datetime import UTC, datetime
from typing import Annotated, Any

import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

# Constraints have names of their own so that a migration can change them on every database.
NAMING_CONVENTION = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}


class UtcDateTime(sa.TypeDecorator[datetime]):
    """A moment, always with its time zone in Python, always UTC in the database.

    SQLite keeps no time zones; without this a value would come back naive.
    """

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: sa.Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"a moment without a time zone: {value!r}")
        value = value.astimezone(UTC)
        return value.replace(tzinfo=None) if dialect.name == "sqlite" else value

    def process_result_value(
        self,
        value: datetime | None,
        dialect: sa.Dialect,  # noqa: ARG002 - SQLAlchemy gives it
    ) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def now_utc() -> datetime:
    """Return this moment."""
    return datetime.now(UTC)


# SQLite numbers rows itself only where the type of the primary key is INTEGER.
BigKey = sa.BigInteger().with_variant(sa.Integer, "sqlite")
NameText = Annotated[str, mapped_column(sa.String(64))]
DigestText = Annotated[str, mapped_column(sa.String(64))]
JsonStrings = Annotated[list[str], mapped_column(sa.JSON)]
JsonObject = Annotated[dict[str, Any], mapped_column(sa.JSON)]


class Record(DeclarativeBase):
    """Base of all tables."""

    metadata = sa.MetaData(naming_convention=NAMING_CONVENTION)
    type_annotation_map = {datetime: UtcDateTime}  # noqa: RUF012 - SQLAlchemy's own form


class SchemaFactsRecord(Record):
    """The schema as its last upgrade left it, for programs that do not know its revision."""

    __tablename__ = "schema_facts"
    __table_args__ = ({"info": {"is_derived": True}},)

    revision: Mapped[str] = mapped_column(sa.String(32), primary_key=True)
    digest: Mapped[DigestText]
    oldest_program: Mapped[str] = mapped_column(sa.String(32))
    """The newest revision known to the oldest program that can serve this schema."""
