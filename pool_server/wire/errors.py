"""The body of every refusal, and descriptions of values that were refused.

Pydantic describes a pattern as a regular expression; people get a sentence (`PATTERN_WORDS`).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, Field

from pool_server.wire import evaluations, names, people


class ErrorBody(BaseModel):
    code: str = Field(description="Stable code for programs, for example `digest_mismatch`.")
    message: str = Field(description="The found and the expected value.")
    hint: str = Field(default="", description="The remedy.")
    details: dict[str, Any] = Field(default_factory=dict)
    request_id: str = ""


class ErrorResponse(BaseModel):
    """Body of every answer with a status of 400 or more."""

    error: ErrorBody


_MOST_CHARACTERS = 80
_ONE_LINE = (
    "one line of text, without control characters, marks of direction and characters without width"
)
_SMALL = "small letters a-z, digits and . _ -"
_KEY = f"{_SMALL}, beginning with a letter, at most 64 characters"
_FILE_NAME = "the name of a file or a thing on one line, without / and \\"

PATTERN_WORDS: Mapping[str, str] = {
    names.NAME_PATTERN: f"{_SMALL}, beginning with a letter or digit, at most 64 characters",
    names.LABEL_KEY_PATTERN: _KEY,
    names.DIGEST_PATTERN: "64 of the digits 0-9 and a-f",
    r"^[0-9a-f]{16}$": "16 of the digits 0-9 and a-f",
    "^([0-9a-f]{32}|[0-9a-f]{64})$": "32 or 64 of the digits 0-9 and a-f",
    r"^[A-Za-z0-9+/]{43}=$": "an Ed25519 key of 32 bytes in base64",
    r"^[a-z0-9][a-z0-9._-]{0,63}@[A-Za-z0-9._:\[\]-]{1,255}$": "SITE@HOST, for example "
    "site-a@pool.example.org",
    r"^[a-z][a-z-]{0,30}\.[a-z][a-z-]{0,30}$": "two words with a dot between, for example "
    "version.published",
    r"^[a-z0-9][a-z0-9-]{0,31}$": "small letters a-z, digits and -, at most 32 characters",
    r"^openid( [!-~]+)*$": "openid, and further scopes after blanks",
    people.EMAIL_PATTERN: "an e-mail address, or nothing",
    names.LINE_PATTERN: _ONE_LINE,
    r"^[^\x00-\x08\x0b-\x1f\x7f-\x9f]*$": "text without control characters",
    r"^[^\x00]*$": "text without the character of number 0",
    names.FILE_NAME_PATTERN: _FILE_NAME,
    evaluations.DATASET_PATTERN: _FILE_NAME,
    evaluations.SPLIT_PATTERN: _FILE_NAME,
    r"^([A-Za-z0-9._-]+/)*[A-Za-z0-9._-]*$": "letters a-z, digits and . _ -, in parts with / "
    "between, for example pools/ours/",
    "^((download|merge|redistribute)(,(download|merge|redistribute))*)?$": "some of download, "
    "merge and redistribute with commas between, or nothing",
    "^(DEBUG|INFO|WARNING|ERROR)$": "DEBUG, INFO, WARNING or ERROR",
}
"""A description of the values that each pattern of a request or setting accepts."""


def place_words(steps: Sequence[int | str]) -> str:
    """Return the path of a value (``labels.population``)."""
    if len(steps) > 2 and steps[-1] == "[key]":
        return f"{'.'.join(str(step) for step in steps[:-2])}: key"
    return ".".join(str(step) for step in steps)


def problem_words(problem: Mapping[str, Any], *, with_value: bool = True) -> str:
    """Return pydantic's complaint about one value of `ValidationError.errors`.

    `with_value=False` omits the value, which may be a misplaced secret.
    """
    actual = f"found {str(problem['input'])[:_MOST_CHARACTERS]!r}" if with_value else ""
    expected = PATTERN_WORDS.get(str(problem.get("ctx", {}).get("pattern", "")))
    if expected is not None:
        return f"{actual}, expected {expected}" if actual else f"expected {expected}"
    said = str(problem["msg"]).removeprefix("Value error, ")
    return f"{said}, {actual}" if actual else said
