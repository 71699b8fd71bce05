"""What there is to narrow a listing by."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

_EXAMPLE: dict[str, Any] = {
    "counted": 31,
    "complete": True,
    "kinds": [{"value": "ert", "count": 24}, {"value": "hog-svm", "count": 7}],
    "sites": [{"value": "site-a", "count": 18}, {"value": "site-b", "count": 13}],
    "states": [{"value": "available", "count": 31}],
    "labels": {"population": [{"value": "infant", "count": 20}, {"value": "adult", "count": 9}]},
}


class FacetCount(BaseModel):
    """One value, and how many of the versions that were counted have it."""

    value: str
    count: int = Field(ge=1)


class FacetsResponse(BaseModel):
    """Values that the versions of a listing have, most frequent first."""

    model_config = ConfigDict(json_schema_extra={"examples": [_EXAMPLE]})

    counted: int = Field(description="How many versions were looked at.")
    complete: bool = Field(
        description="Whether these are all that the listing has. If not, they are its newest, and "
        "all counts are of those."
    )
    kinds: list[FacetCount]
    sites: list[FacetCount]
    states: list[FacetCount]
    labels: dict[str, list[FacetCount]] = Field(
        description="By key of the core vocabulary; keys whose values are words."
    )
