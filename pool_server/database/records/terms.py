"""Terms of use of a version, as codes of the Data Use Ontology."""

from __future__ import annotations

from sqlalchemy import ForeignKey, Index, String, false
from sqlalchemy.orm import Mapped, mapped_column

from pool_server.database.records.base import Record


class TermRecord(Record):
    """One term of one version; `detail` says what the code leaves open (a site, a date, words).

    `inherited` terms came from the inputs of a merge and bind as the version's own do.
    """

    __tablename__ = "terms"
    __table_args__ = (Index(None, "code", "version_id"),)

    version_id: Mapped[int] = mapped_column(ForeignKey("model_versions.id"), primary_key=True)
    code: Mapped[str] = mapped_column(String(32), primary_key=True)
    detail: Mapped[str] = mapped_column(String(256), primary_key=True, default="")
    inherited: Mapped[bool] = mapped_column(default=False, server_default=false())
