"""Terms of use of models.

The codes are those of the GA4GH Data Use Ontology (DUO; https://github.com/EBISPOT/DUO, file
``duo.csv``, and Lawson et al., Cell Genomics 2021, doi:10.1016/j.xgen.2021.100028). A *permission*
allows uses of a model, a *modifier* adds a condition. `TEXT` is a condition in words.

All terms of a version hold together. A merged model has the terms of all its inputs, so it is bound
by every one of them. Alternatives therefore stand in one term, separated by commas
(``DUO:0000028=site-a,site-b``): the same code twice means two conditions that must both hold.

`pool_server.wire.data_use_rules` explains which of them are checked, and which only shown.
"""

import re
from collections.abc import Mapping
from datetime import date, timedelta
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from pool_server.wire.names import Line, RequestModel

DetailKind = Literal["none", "date", "words"]

TEXT = "text"
NO_RESTRICTION = "DUO:0000004"
GENERAL = "DUO:0000042"
HEALTH = "DUO:0000006"
DISEASE = "DUO:0000007"
ANCESTRY_ONLY = "DUO:0000011"
MORATORIUM = "DUO:0000024"
TIME_LIMIT = "DUO:0000025"
USERS = "DUO:0000026"
PROJECTS = "DUO:0000027"
INSTITUTIONS = "DUO:0000028"
CLINICAL_CARE = "DUO:0000043"
NO_ANCESTRY = "DUO:0000044"


class DataUseTerm(BaseModel):
    """One code and its meaning."""

    model_config = ConfigDict(frozen=True)

    code: str
    shorthand: str
    label: str
    kind: Literal["permission", "modifier"]
    detail: DetailKind = Field(
        default="none", description="The required detail after the code: none, a date, or words."
    )
    detail_means: str = ""
    description: str


_ROWS: tuple[tuple[str, str, str, str, str], ...] = (
    ("0000004", "NRES", "no restriction", "For any use.", ""),
    ("0000042", "GRU", "general research use", "For research of any kind.", ""),
    (
        "0000006", "HMB", "health or medical or biomedical research",
        "For research into health; not into population origins or ancestry.", "",
    ),
    (
        "0000007", "DS", "disease specific research", "For research into one disease only.",
        "the disease, best as a MONDO code",
    ),
    (
        "0000011", "POA", "population origins or ancestry research only",
        "For research into population origins or ancestry, and nothing else.", "",
    ),
    (
        "0000012", "RS", "research specific restrictions",
        "For studies of a certain type of research only.", "the type of research",
    ),
    (
        "0000015", "NMDS", "no general methods research",
        "Not for developing methods, such as software or algorithms.", "",
    ),
    ("0000016", "GSO", "genetic studies only", "For studies with genotypes only.", ""),
    (
        "0000018", "NPUNCU", "not for profit, non commercial use only",
        "By organisations without profit, for uses without profit.", "",
    ),
    (
        "0000019", "PUB", "publication required",
        "Results must be made available to other scientists.", "",
    ),
    (
        "0000020", "COL", "collaboration required",
        "Users must agree to work together with those who made it.", "with whom",
    ),
    (
        "0000021", "IRB", "ethics approval required",
        "Users must show the approval of their ethics committee.", "",
    ),
    (
        "0000022", "GS", "geographical restriction", "For use within certain regions only.",
        "the regions",
    ),
    (
        "0000024", "MOR", "publication moratorium",
        "Results must not be published before a certain day.",
        "first day on which results may be published",
    ),
    (
        "0000025", "TS", "time limit on use", "Not for use after a certain day.",
        "last day of use",
    ),
    ("0000026", "US", "user specific restriction", "For certain users only.", "the users"),
    (
        "0000027", "PS", "project specific restriction", "For certain projects only.",
        "the projects",
    ),
    (
        "0000028", "IS", "institution specific restriction", "For certain institutions only.",
        "the institutions: names of sites of the pool",
    ),
    (
        "0000029", "RTN", "return to database or resource",
        "What is derived from it must be given back.", "",
    ),
    ("0000043", "CC", "clinical care use", "Clinical care may use it, too.", ""),
    (
        "0000044", "NPOA", "population origins or ancestry research prohibited",
        "Not for research into population origins or ancestry.", "",
    ),
    (
        "0000045", "NPU", "not for profit organisation use only",
        "By organisations without profit only.", "",
    ),
    ("0000046", "NCU", "non-commercial use only", "For uses without profit only.", ""),
)  # fmt: skip
"""Number, shorthand, label, meaning, and meaning of the detail (empty: it has none)."""

_PERMISSIONS = frozenset({NO_RESTRICTION, GENERAL, HEALTH, DISEASE, ANCESTRY_ONLY})
_DATES = frozenset({MORATORIUM, TIME_LIMIT})


def _describe(number: str, shorthand: str, label: str, text: str, means: str) -> DataUseTerm:
    code = f"DUO:{number}"
    return DataUseTerm(
        code=code,
        shorthand=shorthand,
        label=label,
        kind="permission" if code in _PERMISSIONS else "modifier",
        detail="date" if code in _DATES else "words" if means else "none",
        detail_means=means,
        description=text,
    )


DATA_USE_TERMS: tuple[DataUseTerm, ...] = (
    *(_describe(*row) for row in _ROWS),
    DataUseTerm(
        code=TEXT,
        shorthand="TEXT",
        label="in words",
        kind="modifier",
        detail="words",
        detail_means="the condition",
        description="Any other condition, in words; shown, never checked.",
    ),
)

_BY_CODE: Mapping[str, DataUseTerm] = {term.code: term for term in DATA_USE_TERMS}
_BY_SHORTHAND: Mapping[str, DataUseTerm] = {term.shorthand: term for term in DATA_USE_TERMS}

_MONTHS = re.compile(r"^[0-9]{1,3}$")


class Term(RequestModel):
    """One term of a version."""

    model_config = ConfigDict(frozen=True)

    code: Annotated[str, StringConstraints(max_length=32)]
    detail: Annotated[Line, StringConstraints(max_length=256)] = ""

    @model_validator(mode="after")
    def _is_known(self) -> "Term":
        _require_known(self.code, self.detail)
        return self

    @classmethod
    def parse(cls, text: str, today: date) -> "Term":
        """Read ``CODE`` or ``CODE=DETAIL``; a shorthand (``GRU``) may replace the code.

        A time limit may also be a number of months from `today`, as in the ontology. The message of
        the `ValueError` names the found and the expected form.
        """
        word, _, detail = (part.strip() for part in text.partition("="))
        known = _BY_SHORTHAND.get(word.upper())
        code = known.code if known else word
        if code == TIME_LIMIT and _MONTHS.fullmatch(detail):
            detail = _months_after(today, int(detail)).isoformat()
        # The model repeats the check, but there pydantic would wrap the message.
        _require_known(code, detail)
        return cls(code=code, detail=detail)

    @property
    def choices(self) -> frozenset[str]:
        """The alternatives in the detail, for comparison: without case and surrounding spaces."""
        return frozenset(choice.strip().casefold() for choice in self.detail.split(","))

    def in_words(self) -> str:
        """Return the term for people: ``publication moratorium (DUO:0000024): 2027-01-31``."""
        return _in_words(self.code, _BY_CODE[self.code].label, self.detail)


class TermResponse(BaseModel):
    """One term of a version as clients see it."""

    code: str
    label: str
    detail: str = ""
    inherited: bool = Field(
        description="From an input of a merge, or from the same file elsewhere in the pool."
    )

    def term(self) -> Term:
        return Term(code=self.code, detail=self.detail)

    def in_words(self) -> str:
        """Return the term for people, with the label that the pool gives its code."""
        return _in_words(self.code, self.label, self.detail)


def _in_words(code: str, label: str, detail: str) -> str:
    named = label if code == TEXT else f"{label} ({code})"
    return f"{named}: {detail}" if detail else named


def label_of(code: str) -> str:
    """Return a code's label, or the code itself if it is unknown."""
    known = _BY_CODE.get(code)
    return code if known is None else known.label


def _require_known(code: str, detail: str) -> None:
    known = _BY_CODE.get(code)
    if known is None:
        raise ValueError(
            f"{code[:40]!r} is not a term; expected a code such as {GENERAL} (general research "
            f"use) or {TEXT!r}; `poolctl models vocabulary terms` lists them"
        )
    named = f"{known.code} ({known.label})"
    if known.detail == "none" and detail:
        raise ValueError(f"{named} takes no detail, found {detail!r}")
    if known.detail == "words" and not all(part.strip() for part in detail.split(",")):
        raise ValueError(
            f"{named} needs {known.detail_means} after it, found {detail!r}; for example "
            f"{known.code}=..."
        )
    if known.detail == "date" and _read_date(detail) is None:
        raise ValueError(
            f"{named} needs a date after it ({known.detail_means}), found {detail!r}; for "
            f"example {known.code}=2027-01-31"
        )


def _read_date(text: str) -> date | None:
    try:
        return date.fromisoformat(text) if len(text) == len("2027-01-31") else None
    except ValueError:
        return None


def _months_after(day: date, months: int) -> date:
    years, month = divmod(day.month - 1 + months, 12)
    first_of_next = date(day.year + years + (month == 11), (month + 1) % 12 + 1, 1)
    return min(
        first_of_next - timedelta(days=1),
        date(day.year + years, month + 1, 1) + timedelta(days=day.day - 1),
    )
