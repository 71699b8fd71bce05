"""Building requests to a pool, refusing here what the pool would refuse."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from site_agent.errors import PoolRefusedRequestError

Request = TypeVar("Request", bound=BaseModel)


def build_request(kind: type[Request], **fields: Any) -> Request:
    """Build a request.

    Raises
    ------
    PoolRefusedRequestError
        Names the fields that the pool would refuse.
    """
    try:
        return kind(**fields)
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(str(step) for step in problem['loc'])}: {problem['msg']}, "
            f"found {str(problem['input'])[:80]!r}"
            for problem in error.errors(include_url=False)
        )
        raise PoolRefusedRequestError(problems) from error
