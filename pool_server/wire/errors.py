"""How the pool says no."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field


class ErrorBody(BaseModel):
    code: str = Field(description="Stable word for programs, for example `digest_mismatch`.")
    message: str = Field(description="What was found and what was expected.")
    hint: str = Field(default="", description="What to do about it.")
    details: dict[str, Any] = Field(default_factory=dict)
    request_id: str = ""


class ErrorResponse(BaseModel):
    """Body of every answer with a status of 400 or more."""

    error: ErrorBody
