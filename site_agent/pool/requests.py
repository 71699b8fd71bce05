"""Build requests to the pool, and check that its answers match them.

A malicious or compromised pool could answer a question with true statements about another model:
every signature would hold. So each answer that names its subject is compared with the path of the
request.
"""

import re
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from pool_server.wire.errors import place_words, problem_words
from pool_server.wire.names import ModelAddress
from site_agent.errors import InvalidInputError, PoolAnswerError, PoolRefusedRequestError

Request = TypeVar("Request", bound=BaseModel)

_VERSION = re.compile(r"/api/v1/models/([^/]+)/([^/]+)(?:/versions/([^/]+))?")
_KEYS_OF = re.compile(r"/api/v1/sites/([^/]+)/keys")
_IDENTIFIER = re.compile(r"/(lineage|rounds|merges|uploads|sessions)/([0-9a-f]+)")
_FIELD_OF = {
    "lineage": "root",
    "rounds": "round_id",
    "merges": "merge_id",
    "uploads": "upload_id",
    "sessions": "session_id",
}


def build_request(kind: type[Request], /, **fields: Any) -> Request:
    """Build a request."""
    try:
        return kind(**fields)
    except ValidationError as error:
        problems = "; ".join(
            f"{place_words(problem['loc'])}: {problem_words(problem)}"
            if problem["loc"]
            # Of the whole request, which is more than anybody wants to read.
            else problem_words(problem, with_value=False)
            for problem in error.errors(include_url=False)
        )
        raise PoolRefusedRequestError(problems) from error


def parse_address(text: str) -> ModelAddress:
    """Read ``[pool://]SITE/NAME[@VERSION|@sha256:DIGEST]``."""
    try:
        return ModelAddress.parse(text)
    except ValueError as error:
        raise InvalidInputError(str(error)) from error


def model_path(address: str | ModelAddress) -> str:
    """Return the path of a model in the pool; the version in the address does not matter."""
    where = parse_address(address) if isinstance(address, str) else address
    return f"/api/v1/models/{where.site}/{where.name}"


def version_path(address: str | ModelAddress) -> str:
    """Return where a pool has a version: the newest where the address names none."""
    where = parse_address(address) if isinstance(address, str) else address
    return f"{model_path(where)}/versions/{where.reference or 'latest'}"


def require_subject(path: str, answer: BaseModel) -> None:
    """Raise if an answer's subject differs from the path of its request.

    Only the pool knows which version is the newest; there the model alone is compared.
    """
    if match := _VERSION.search(path):
        site, name, reference = match.groups(default="")
        address, said = f"pool://{site}/{name}", getattr(answer, "address", None)
        if said is not None:
            require_same(address, said.partition("@")[0])
            if reference.isdecimal():
                require_same(f"{address}@{int(reference)}", said)
        if reference.startswith("sha256:"):
            for field in ("digest", "root"):
                require_field(answer, field, reference.removeprefix("sha256:"))
    if match := _KEYS_OF.search(path):
        for key in getattr(answer, "items", [answer]):
            require_field(key, "site", match[1])
    for noun, identifier in _IDENTIFIER.findall(path):
        require_field(answer, _FIELD_OF[noun], identifier)


def require_field(answer: BaseModel, field: str, asked: str) -> None:
    """Raise `PoolAnswerError` if an answer has this field and says something else than asked."""
    require_same(asked, getattr(answer, field, asked))


def require_same(asked: object, answered: object) -> None:
    """Raise `PoolAnswerError` if the answered value differs from the requested one."""
    if asked != answered:
        raise PoolAnswerError(
            f"the pool was asked for {asked} and answered with {str(answered)[:200]}",
            hint="do not use the answer; notify the pool's admin",
        )
