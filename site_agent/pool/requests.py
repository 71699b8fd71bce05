"""Building requests to a pool, refusing here what the pool would refuse."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from pool_server.wire.problem_words import place_words, problem_words
from site_agent.errors import PoolRefusedRequestError

Request = TypeVar("Request", bound=BaseModel)


def build_request(kind: type[Request], /, **fields: Any) -> Request:
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
            f"{place_words(problem['loc'])}: {problem_words(problem)}"
            for problem in error.errors(include_url=False)
        )
        raise PoolRefusedRequestError(problems) from error
