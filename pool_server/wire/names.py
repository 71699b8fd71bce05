"""Names, digests and addresses: the words that sites and the pool use for one model."""

import re
from dataclasses import dataclass
from typing import Annotated, Generic, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

NAME_PATTERN = r"^[a-z0-9][a-z0-9._-]{0,63}$"
DIGEST_PATTERN = r"^[0-9a-f]{64}$"
LABEL_KEY_PATTERN = r"^[a-z][a-z0-9_.-]{0,63}$"

# Control characters would let a label or a file name write on the terminals of other sites; marks
# of direction and characters without width would make one name look like another.
UNSHOWN = (
    r"\x00-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    r"\ufff9-\ufffb"
)
LINE_PATTERN = rf"^[^{UNSHOWN}]*$"
FILE_NAME_PATTERN = rf"^[^/\\{UNSHOWN}]*[^/\\{UNSHOWN}.][^/\\{UNSHOWN}]*$"

Name = Annotated[str, StringConstraints(pattern=NAME_PATTERN)]
Digest = Annotated[str, StringConstraints(pattern=DIGEST_PATTERN)]
LabelKey = Annotated[str, StringConstraints(pattern=LABEL_KEY_PATTERN)]
Line = Annotated[str, StringConstraints(pattern=LINE_PATTERN)]
"""One line of text without invisible characters."""
LabelValue = Annotated[Line, StringConstraints(min_length=1, max_length=256)]
# A name, never a path: others may save the file under it.
FileName = Annotated[str, StringConstraints(max_length=255, pattern=FILE_NAME_PATTERN)]
Description = Annotated[str, StringConstraints(max_length=4000, pattern=r"^[^\x00]*$")]


def _refuse_truth(value: object) -> object:
    """Raise `ValueError` for true and false, which Python counts as 1 and 0."""
    if isinstance(value, bool):
        raise ValueError(f"found {str(value).lower()}, expected a number")
    return value


Whole = Annotated[int, BeforeValidator(_refuse_truth)]
FiniteFloat = Annotated[float, BeforeValidator(_refuse_truth), Field(allow_inf_nan=False)]

NextCursor = Annotated[
    str | None, Field(description="Send it as `cursor` to get the next page; absent on the last.")
]

ItemT = TypeVar("ItemT")


class ItemList(BaseModel, Generic[ItemT]):
    """All items of a listing."""

    items: list[ItemT]


class Page(ItemList[ItemT], Generic[ItemT]):
    """One page of a listing, newest first."""

    next_cursor: NextCursor = None


_ADDRESS = re.compile(
    r"^(?:pool://)?(?P<site>[a-z0-9][a-z0-9._-]{0,63})/(?P<name>[a-z0-9][a-z0-9._-]{0,63})"
    r"(?:@(?P<reference>[0-9]{1,9}|sha256:[0-9a-f]{64}|latest))?$"
)


@dataclass(frozen=True)
class ModelAddress:
    """A parsed ``pool://SITE/NAME[@VERSION|@sha256:DIGEST]``."""

    site: str
    name: str
    reference: str = ""
    """A number, ``sha256:`` and a digest, or ``latest`` or empty for the newest version."""

    @classmethod
    def parse(cls, text: str) -> "ModelAddress":
        """Read an address, with or without scheme; the message of `ValueError` shows the form."""
        match = _ADDRESS.fullmatch(text)
        if match is None:
            raise ValueError(
                f"{text!r} is not a model address; expected SITE/NAME, SITE/NAME@VERSION or "
                "SITE/NAME@sha256:DIGEST in lower case, for example site-a/face-68@2"
            )
        return cls(match["site"], match["name"], match["reference"] or "")

    def __str__(self) -> str:
        suffix = f"@{self.reference}" if self.reference else ""
        return f"pool://{self.site}/{self.name}{suffix}"


class RequestModel(BaseModel):
    """A request, or a part of one: a misspelt field is refused, not ignored."""

    model_config = ConfigDict(extra="forbid")
