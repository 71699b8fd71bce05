"""Rules of the terms of use: which models may be merged, and which passed on.

Terms are checked at three moments, always with today's date:

=======================  =====================================================================
when                     what is refused
=======================  =====================================================================
a file is announced      codes that nobody knows, details of the wrong form, and terms that
                         contradict each other (`contradictions`)
a merge, at home before  contradicting terms of different inputs, a time limit that has passed,
it is made and in the    an institution that is not among those named, and whatever purpose was
pool when announced      declared and a term excludes (`check_merge`)
handing a file on        a moratorium that has not ended, a time limit that has passed, and
outside the pool         files for certain users, institutions or projects only
                         (`check_redistribution`)
=======================  =====================================================================

Everything else is shown and left to people: that results get published, collaboration, ethics
approval, return of derived data, region, type of research, genetic studies, and free words.
Downloads within the pool are not checked here: who may download is decided by visibility and
rights.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, StringConstraints

from pool_server.wire.data_use import (
    ANCESTRY_ONLY,
    CLINICAL_CARE,
    DISEASE,
    GENERAL,
    HEALTH,
    INSTITUTIONS,
    MORATORIUM,
    NO_ANCESTRY,
    NO_METHODS,
    NO_RESTRICTION,
    NON_COMMERCIAL,
    NOT_PROFIT_NOR_COMMERCIAL,
    NOT_PROFIT_ORGANISATIONS,
    PROJECTS,
    TIME_LIMIT,
    USERS,
    Term,
)
from pool_server.wire.names import RequestModel

# Codes of which each input names its own, so that two inputs may leave nothing in common.
_LISTS: Mapping[str, str] = {
    DISEASE: "diseases",
    USERS: "users",
    PROJECTS: "projects",
    INSTITUTIONS: "institutions",
}
_NO_COMMERCE = (NOT_PROFIT_NOR_COMMERCIAL, NOT_PROFIT_ORGANISATIONS, NON_COMMERCIAL)
# What allows more instead of less; a merged model has it only if every input has it.
PERMISSIVE = frozenset({NO_RESTRICTION, CLINICAL_CARE})

Purpose = Literal["research", "health", "ancestry", "methods", "clinical", "commercial"]
"""Uses that a merged model can be declared for, beside diseases."""


class IntendedUse(RequestModel):
    """The declared purpose of a merge."""

    model_config = ConfigDict(frozen=True)

    purposes: tuple[Purpose, ...] = Field(default=(), max_length=6)
    diseases: tuple[Annotated[str, StringConstraints(min_length=1, max_length=256)], ...] = Field(
        default=(), max_length=16, description="Diseases that it is to be used for."
    )

    @property
    def is_declared(self) -> bool:
        return bool(self.purposes or self.diseases)

    def including(self, purpose: Purpose) -> "IntendedUse":
        """Return the same with one more purpose."""
        purposes = tuple(dict.fromkeys([*self.purposes, purpose]))
        return IntendedUse(purposes=purposes, diseases=self.diseases)


@dataclass(frozen=True)
class TermProblem:
    """Something that the terms with these codes say against a plan.

    What does not forbid it, only people can judge.
    """

    forbids: bool
    message: str
    codes: tuple[str, ...]


@dataclass(frozen=True)
class TermsOf:
    """The terms of one input, and what to call it."""

    name: str
    terms: tuple[Term, ...] = field(default=())

    def with_code(self, *codes: str) -> list[Term]:
        return [each for each in self.terms if each.code in codes]


def inherited_terms(inputs: Iterable[Iterable[Term]]) -> list[Term]:
    """Return what a merged model inherits: every restriction of every input.

    What allows more instead of less (`PERMISSIVE`) is inherited only when all inputs have it.
    """
    sets = [set(each) for each in inputs]
    union: set[Term] = set().union(*sets)
    shared = set.intersection(*sets) if sets else set()
    kept = {each for each in union if each.code not in PERMISSIVE or each in shared}
    if any(each.code != NO_RESTRICTION for each in kept):
        kept = {each for each in kept if each.code != NO_RESTRICTION}
    return list(sort_terms(kept))


def sort_terms(terms: Iterable[Term]) -> tuple[Term, ...]:
    """Return terms in the order in which they are shown: by code."""
    return tuple(sorted(terms, key=lambda each: (each.code, each.detail)))


def contradictions(terms: Iterable[Term], name: str = "the terms") -> list[TermProblem]:
    """Return what makes the terms of one version impossible to hold together."""
    own = TermsOf(name, tuple(terms))
    problems = _contradictions([own])
    others = [each for each in own.terms if each.code not in {NO_RESTRICTION, CLINICAL_CARE}]
    if own.with_code(NO_RESTRICTION) and others:
        problems.append(
            TermProblem(
                True,
                f"{name}: 'no restriction' ({NO_RESTRICTION}) stands beside {others[0].in_words()}",
                (NO_RESTRICTION, others[0].code),
            )
        )
    return problems


def check_merge(
    inputs: Sequence[TermsOf],
    use: IntendedUse | None = None,
    *,
    today: date,
    institution: Iterable[str] = (),
) -> list[TermProblem]:
    """Return what the terms of its inputs say against a merge; those that forbid first.

    Only inputs whose terms are known are given. Without a `use` only the terms among themselves are
    looked at; `institution` are names of the site that merges, if known.
    """
    problems = _contradictions(inputs)
    problems += _time_limits(inputs, today)
    problems += _other_institutions(inputs, {name.casefold() for name in institution if name})
    if use is not None and use.is_declared:
        problems += _excluded_uses(inputs, use)
    problems += _narrowings(inputs)
    problems += _moratoria(inputs, today, forbids=False)
    problems += _left_to_people(inputs)
    return sorted(problems, key=lambda each: not each.forbids)


def check_redistribution(terms: Iterable[Term], *, today: date, name: str) -> list[TermProblem]:
    """Return what the terms of a version say against handing its file on outside the pool.

    A moratorium that has not ended forbids it, for whoever gets the file is not known to keep
    it; so do a time limit that has passed, and terms that name users, institutions or projects.
    """
    own = [TermsOf(name, tuple(terms))]
    problems = _time_limits(own, today) + _moratoria(own, today, forbids=True)
    problems += [
        TermProblem(
            True,
            f"{name}: {term.in_words()}; who gets the file outside the pool is not known to be "
            "among them",
            (term.code,),
        )
        for term in own[0].with_code(USERS, INSTITUTIONS, PROJECTS)
    ]
    problems += _left_to_people(own)
    return sorted(problems, key=lambda each: not each.forbids)


def _contradictions(inputs: Sequence[TermsOf]) -> list[TermProblem]:
    """Find terms that leave no use at all when they hold together."""
    problems = []
    for code, noun in _LISTS.items():
        named = [(each.name, term) for each in inputs for term in each.with_code(code)]
        if named and not frozenset.intersection(*(term.choices for _, term in named)):
            words = "; ".join(f"{name}: {term.detail}" for name, term in named)
            problems.append(
                TermProblem(True, f"no {noun} are left that all terms allow ({words})", (code,))
            )
    only = _first(inputs, ANCESTRY_ONLY)
    against = _first(inputs, NO_ANCESTRY, HEALTH, DISEASE)
    if only and against:
        problems.append(
            TermProblem(
                True,
                f"{only[0]} is for ancestry research only, {against[0]} is not for that "
                f"({against[1].in_words()})",
                (ANCESTRY_ONLY, against[1].code),
            )
        )
    return problems


def _time_limits(inputs: Sequence[TermsOf], today: date) -> list[TermProblem]:
    return [
        TermProblem(True, f"{each.name}: its time limit has passed ({term.detail})", (TIME_LIMIT,))
        for each in inputs
        for term in each.with_code(TIME_LIMIT)
        if today > date.fromisoformat(term.detail)
    ]


def _moratoria(inputs: Sequence[TermsOf], today: date, *, forbids: bool) -> list[TermProblem]:
    return [
        TermProblem(
            forbids,
            f"{each.name}: results must not be published before {term.detail}",
            (MORATORIUM,),
        )
        for each in inputs
        for term in each.with_code(MORATORIUM)
        if today < date.fromisoformat(term.detail)
    ]


def _other_institutions(inputs: Sequence[TermsOf], institution: set[str]) -> list[TermProblem]:
    if not institution:
        return []
    return [
        TermProblem(
            True, f"{each.name} is only for the institutions {term.detail}", (INSTITUTIONS,)
        )
        for each in inputs
        for term in each.with_code(INSTITUTIONS)
        if not term.choices & institution
    ]


def _excluded_uses(inputs: Sequence[TermsOf], use: IntendedUse) -> list[TermProblem]:
    """Find terms that exclude what the result is declared to be for."""
    excluding: dict[str, tuple[str, ...]] = {
        "commercial": _NO_COMMERCE,
        "methods": (NO_METHODS, ANCESTRY_ONLY),
        "ancestry": (NO_ANCESTRY, HEALTH, DISEASE),
        "research": (HEALTH, DISEASE, ANCESTRY_ONLY),
        "health": (DISEASE, ANCESTRY_ONLY),
        "clinical": (),
    }
    problems = [
        TermProblem(
            True, f"{purpose} use is excluded by {each.name}: {term.in_words()}", (term.code,)
        )
        for purpose in use.purposes
        for each in inputs
        for term in each.with_code(*excluding[purpose])
    ]
    if "clinical" in use.purposes:
        problems += [
            TermProblem(
                True,
                f"clinical use is not allowed by {each.name}: it is for research, without "
                f"'clinical care use' ({CLINICAL_CARE})",
                (CLINICAL_CARE,),
            )
            for each in inputs
            if each.terms and not each.with_code(CLINICAL_CARE, NO_RESTRICTION)
        ]
    for disease in use.diseases:
        problems += [
            TermProblem(
                True, f"{disease} is not what {each.name} is for: {term.in_words()}", (term.code,)
            )
            for each in inputs
            for term in each.with_code(DISEASE, ANCESTRY_ONLY)
            if term.code == ANCESTRY_ONLY or disease.casefold() not in term.choices
        ]
    return problems


def _narrowings(inputs: Sequence[TermsOf]) -> list[TermProblem]:
    """Find inputs whose permission is wider than what will be left to the result."""
    narrow = _first(inputs, DISEASE) or _first(inputs, ANCESTRY_ONLY) or _first(inputs, HEALTH)
    wider = {DISEASE: (NO_RESTRICTION, GENERAL, HEALTH), HEALTH: (NO_RESTRICTION, GENERAL)}
    if narrow is None:
        return []
    name, term = narrow
    return [
        TermProblem(
            False,
            f"{each.name} is for more ({found[0].in_words()}), but the result only for what "
            f"{name} allows: {term.in_words()}",
            (term.code, found[0].code),
        )
        for each in inputs
        if (found := each.with_code(*wider.get(term.code, (NO_RESTRICTION, GENERAL))))
    ]


def _left_to_people(inputs: Sequence[TermsOf]) -> list[TermProblem]:
    judged = {
        NO_RESTRICTION, GENERAL, HEALTH, DISEASE, ANCESTRY_ONLY, MORATORIUM, TIME_LIMIT,
        CLINICAL_CARE,
    }  # fmt: skip
    shown = dict.fromkeys(
        (each.name, term) for each in inputs for term in each.terms if term.code not in judged
    )
    return [TermProblem(False, f"{name}: {term.in_words()}", (term.code,)) for name, term in shown]


def _first(inputs: Sequence[TermsOf], *codes: str) -> tuple[str, Term] | None:
    for each in inputs:
        if found := each.with_code(*codes):
            return each.name, found[0]
    return None
