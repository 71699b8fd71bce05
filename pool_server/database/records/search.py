"""What a search looks at: one row for each version, written by the database itself."""

from __future__ import annotations

from sqlalchemy import BigInteger, ForeignKey, Index, String, Text
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.orm import Mapped, mapped_column

from pool_server.database.records.base import BigKey, Record


class SearchEntryRecord(Record):
    """All that a version can be found by, beside its numbers.

    Only the triggers of the baseline migration write here: any statement that changes a version,
    its labels, model, site or grants changes its entry in the same transaction. The view
    ``search_sources`` says what belongs into an entry.

    `terms` are words without spaces that a version has or has not
    (`pool_server.models.registry.search.terms`); on SQLite one text, with a space before and
    after each, on PostgreSQL a number for each. `facets` has those that are counted, with spaces
    between them. `words` is the text that people search, in lower case. `sort_name` orders by
    name, then site, then number.
    """

    __tablename__ = "search_entries"
    # What is derived is not backed up, but made again.
    __table_args__ = (Index(None, "sort_name"), {"info": {"is_derived": True}})

    version_id: Mapped[int] = mapped_column(
        BigKey, ForeignKey("model_versions.id", ondelete="CASCADE"), primary_key=True
    )
    # In the order of its characters, whatever the language of the database.
    sort_name: Mapped[str] = mapped_column(
        String(160).with_variant(String(160, collation="C"), "postgresql")
    )
    facets: Mapped[str] = mapped_column(Text)
    terms: Mapped[str] = mapped_column(Text().with_variant(ARRAY(BigInteger()), "postgresql"))
    # Compared byte by byte, which is quicker.
    words: Mapped[str] = mapped_column(Text().with_variant(Text(collation="C"), "postgresql"))


def is_index_of_search(name: str | None, *_more: object) -> bool:
    """Tell tables and indexes that only one kind of database has.

    Full-text indexes of SQLite are tables, with others behind them; those of PostgreSQL are
    indexes of a kind that SQLite has not.
    """
    return name is not None and name.startswith(
        ("search_terms", "search_words", "ix_search_entries_terms", "ix_search_entries_words")
    )
