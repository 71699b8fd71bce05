"""The errors of `aggregators`.

AggregatorError
├── FormatError                   a malformed model file
│   └── UnknownFormatError        a file of no known format
├── SiteOnlyError                 a personal part of a network, which must not leave its site
├── IncompatibleModelsError       models that cannot be merged
│   └── WrongKindError            a kind of model that the method does not merge
├── ContributionError             a site's contribution that does not belong into its round
├── WeightError                   weights that are missing, not finite or not positive
├── OptionError                   an unknown option, or a value out of range
├── UnknownMethodError            no aggregation method of that name
├── RecipeError                   a recipe that cannot be read or repeated
│   └── RecipeInputMissingError   an input of a recipe was not found
├── ConversionError               a model that a file format cannot hold
├── ImageArrayError               an array that is not a grey or RGB image of bytes
├── FaceBoxError                  face boxes, landmarks or starting shapes that are invalid
└── InconsistentModelError        arrays that do not form a landmark model
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import ValidationError


def first_problem(error: "ValidationError") -> str:
    """Return pydantic's first problem and its place (``options.step: Input should be ...``)."""
    problem = error.errors(include_url=False, include_context=False)[0]
    where = ".".join(str(step) for step in problem["loc"])
    said = problem["msg"].removeprefix("Value error, ")
    return f"{where}: {said}" if where else said


class AggregatorError(Exception):
    """Root of all errors of this package."""


class FormatError(AggregatorError):
    """Bytes that do not follow their format.

    `what`: Part of the format (``"number of leaves of tree 3"``). `offset`: Byte offset from the
    start of the file. `actual`, `expected`: Content of the file there, and valid content.
    `subject`: Name of the file, where known.
    """

    def __init__(
        self, what: str, offset: int, actual: str, expected: str, subject: str = ""
    ) -> None:
        self.what = what
        self.offset = offset
        self.actual = actual
        self.expected = expected
        self.subject = subject
        super().__init__(what, offset, actual, expected, subject)

    def __str__(self) -> str:
        prefix = f"{self.subject}: " if self.subject else ""
        return (
            f"{prefix}{self.what}: found {self.actual} at byte {self.offset}, "
            f"expected {self.expected}"
        )

    def about(self, subject: str) -> "FormatError":
        """Return the same error with the file's name."""
        return type(self)(self.what, self.offset, self.actual, self.expected, subject)


class UnknownFormatError(FormatError):
    """A file of no known format."""


class SiteOnlyError(AggregatorError):
    """A personal part of a network, or a network that holds one: it must not leave its site."""


class IncompatibleModelsError(AggregatorError):
    """Models that cannot be merged, with the first field that differs.

    `field`: Name of the field (``"window"``). `first`, `other`: Its value in the first model and in
    the one that differs. `first_name`, `other_name`: Names of the two models in the message.
    `hint`: Advice for the user.
    """

    def __init__(
        self,
        field: str,
        first: str,
        other: str,
        *,
        first_name: str = "the first model",
        other_name: str = "another model",
        hint: str = "",
    ) -> None:
        self.field = field
        self.first = first
        self.other = other
        self.first_name = first_name
        self.other_name = other_name
        self.hint = hint
        super().__init__(field, first, other, first_name, other_name, hint)

    def __str__(self) -> str:
        text = (
            f"{self.field} {self.first} against {self.other} "
            f"({self.first_name} against {self.other_name})"
        )
        return f"{text}; {self.hint}" if self.hint else text


class WrongKindError(IncompatibleModelsError):
    """A kind of model that the method does not merge.

    `name`: Name of the input in the message. `kind`: Its kind. `expected`: The kinds that the
    method merges.
    """

    def __init__(self, name: str, kind: str, expected: Sequence[str], *, hint: str = "") -> None:
        kinds = " and ".join(f"{kind_}s" for kind_ in expected)
        super().__init__("kind", kinds, kind, other_name=name, hint=hint)

    def __str__(self) -> str:
        text = f"{self.other_name} is a {self.other}, and this method merges {self.first}"
        return f"{text}; {self.hint}" if self.hint else text


class ContributionError(AggregatorError):
    """A site's contribution that does not belong into its round."""


class WeightError(AggregatorError):
    """Weights that are missing, not finite or not positive."""


class OptionError(AggregatorError):
    """An unknown option, or a value out of its range."""


class UnknownMethodError(AggregatorError):
    """No aggregation method has this name."""


class RecipeError(AggregatorError):
    """A recipe that cannot be read, or does not give the same bytes again."""


class RecipeInputMissingError(RecipeError):
    """An input of a recipe was not found."""


class ConversionError(AggregatorError):
    """A model that a file format cannot hold."""


class ImageArrayError(AggregatorError):
    """An array that is not a grey or RGB image of bytes."""


class FaceBoxError(AggregatorError):
    """Face boxes, landmarks or starting shapes that are not finite or of the wrong shape."""


class InconsistentModelError(AggregatorError):
    """Arrays that do not form a landmark model."""
