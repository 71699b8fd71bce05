"""Recipes of merged models, and the parents that they name."""

from __future__ import annotations

from sqlalchemy import Double, ForeignKey, Index, String
from sqlalchemy.orm import Mapped, mapped_column

from pool_server.database.records.base import DigestText, JsonObject, Record


class RecipeRecord(Record):
    """The recipe that makes a version's file again, as the merge wrote it."""

    __tablename__ = "recipes"

    version_id: Mapped[int] = mapped_column(ForeignKey("model_versions.id"), primary_key=True)
    method: Mapped[str] = mapped_column(String(64))
    document: Mapped[JsonObject]


class ParentRecord(Record):
    """One input of a recipe.

    Parents are known by digest, for the pool need not have them; the child's digest stands here
    too so that a family tree is walked within this one table.
    """

    __tablename__ = "parents"
    __table_args__ = (
        Index(None, "child_digest", "parent_digest"),
        Index(None, "parent_digest", "child_digest"),
    )

    version_id: Mapped[int] = mapped_column(ForeignKey("model_versions.id"), primary_key=True)
    position: Mapped[int] = mapped_column(primary_key=True)
    child_digest: Mapped[DigestText]
    parent_digest: Mapped[DigestText]
    weight: Mapped[float] = mapped_column(Double)
    method: Mapped[str] = mapped_column(String(64))
