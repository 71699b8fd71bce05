"""Everything that `aggregators` raises on purpose.

    AggregatorError
    ├── FormatError               bytes that are no well-formed model file
    │   └── UnknownFormatError    none of the known formats
    ├── IncompatibleModelsError   well-formed models that cannot be merged
    │   └── WrongKindError        a model of a kind that the method does not merge
    ├── WeightError               weights that are not finite and positive, or too few
    ├── OptionError               an option the method does not have or cannot take
    ├── UnknownMethodError        no aggregation method of that name
    ├── RecipeError               a recipe that cannot be read or repeated
    ├── ConversionError           a model that the wanted file format cannot hold
    ├── ImageArrayError           an array that is no grey or RGB image of bytes
    ├── FaceBoxError              a face box, or starting shape, that no landmarks can start from
    └── InconsistentModelError    arrays that do not make up a landmark model

None of them knows of HTTP or of exit codes; the server and the command line
map the types.
"""

from __future__ import annotations

from collections.abc import Sequence


class AggregatorError(Exception):
    """Root of all errors of this package."""


class FormatError(AggregatorError):
    """Bytes that do not follow the format they claim.

    Parameters
    ----------
    what : str
        The part of the format that was being read (``"number of leaves of tree 3"``).
    offset : int
        Byte offset from the start of the file.
    found, expected : str
        What stands there, and what would have been well-formed.
    subject : str
        Name of the file, where known.
    """

    def __init__(
        self, what: str, *, offset: int, found: str, expected: str, subject: str = ""
    ) -> None:
        self.what = what
        self.offset = offset
        self.found = found
        self.expected = expected
        self.subject = subject
        super().__init__(what, offset, found, expected, subject)

    def __str__(self) -> str:
        prefix = f"{self.subject}: " if self.subject else ""
        return (
            f"{prefix}{self.what}: found {self.found} at byte {self.offset}, "
            f"expected {self.expected}"
        )

    def about(self, subject: str) -> FormatError:
        """Return the same error with the file's name in it."""
        return type(self)(
            self.what,
            offset=self.offset,
            found=self.found,
            expected=self.expected,
            subject=subject,
        )


class UnknownFormatError(FormatError):
    """The first bytes belong to none of the formats this package reads."""


class IncompatibleModelsError(AggregatorError):
    """Models that a method cannot merge, with the first differing field.

    Parameters
    ----------
    field : str
        The field's name (``"window"``).
    first, other : str
        Its value in the first model and in the one that differs.
    first_name, other_name : str
        What to call the two models in the message.
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
    """An input that is no model of the kind which a method merges.

    Parameters
    ----------
    name : str
        What to call the input in the message.
    kind : str
        What it is.
    expected : sequence of str
        What the method merges.
    """

    def __init__(self, name: str, kind: str, expected: Sequence[str], *, hint: str = "") -> None:
        wanted = " and ".join(f"{each}s" for each in expected)
        super().__init__("kind", wanted, kind, other_name=name, hint=hint)

    def __str__(self) -> str:
        text = f"{self.other_name} is a {self.other}, and this method merges {self.first}"
        return f"{text}; {self.hint}" if self.hint else text


class WeightError(AggregatorError):
    """Weights that are not finite and positive, or not one for each model."""


class OptionError(AggregatorError):
    """An option that the method does not have, or a value that it cannot take."""


class UnknownMethodError(AggregatorError):
    """No aggregation method has this name."""


class RecipeError(AggregatorError):
    """A recipe that cannot be read, or that gives other bytes than it promises."""


class RecipeInputMissingError(RecipeError):
    """An input of a recipe that is nowhere to be found."""


class ConversionError(AggregatorError):
    """A model that the wanted file format cannot hold."""


class ImageArrayError(AggregatorError):
    """An array that is no image a predictor can read."""


class FaceBoxError(AggregatorError):
    """A face box without area or not finite, or starting shapes that do not fit the boxes."""


class InconsistentModelError(AggregatorError):
    """Arrays, put together by a program, that do not make up a landmark model."""
