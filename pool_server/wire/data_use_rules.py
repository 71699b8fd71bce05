"""Rules of the terms of use: conditions for merging models and for passing them on.

Terms are checked at three moments, always with today's date:

=======================  =====================================================================
moment                   refused
=======================  =====================================================================
a file is announced      unknown codes, details of the wrong form, and terms that contradict each
                         other (`contradictions`)
a merge, at home before  contradicting terms of different inputs, a time limit that has passed,
it is made and in the    an institution that is not among the named ones (`check_merge`)
pool when announced
passing a file on        a moratorium that has not ended, a time limit that has passed, and
outside the pool         files for certain users, institutions or projects only
                         (`check_redistribution`)
=======================  =====================================================================

Everything else is shown and left to people: that results get published, collaboration, ethics
approval, return of derived data, region, purposes, genetic studies, and free words.
Downloads within the pool are not checked here: visibility and rights decide on them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime

from pool_server.wire.data_use import (
    ANCESTRY_ONLY,
    CLINICAL_CARE,
    DISEASE,
    GENERAL,
    HEALTH,
    INSTITUTIONS,
    MORATORIUM,
    NO_ANCESTRY,
    NO_RESTRICTION,
    PROJECTS,
    TIME_LIMIT,
    USERS,
    Term,
)

# Codes with lists, which may differ between two inputs so that nothing is left in common.
_LISTS: Mapping[str, str] = {
    DISEASE: "diseases",
    USERS: "users",
    PROJECTS: "projects",
    INSTITUTIONS: "institutions",
}
# Terms that add a permission; a merged model has one only if every input has it.
PERMISSIVE = frozenset({NO_RESTRICTION, CLINICAL_CARE})


@dataclass(frozen=True)
class TermProblem:
    """An objection of terms to a plan; if it does not forbid the plan, people judge it."""

    forbids: bool
    message: str


@dataclass(frozen=True)
class TermsOf:
    """The terms of one input, and its name in messages."""

    name: str
    terms: tuple[Term, ...] = field(default=())

    def with_code(self, *codes: str) -> list[Term]:
        return [term for term in self.terms if term.code in codes]


def inherited_terms(inputs: Iterable[Iterable[Term]]) -> list[Term]:
    """Return the terms that a merged model inherits: every restriction of every input.

    Terms that add a permission (`PERMISSIVE`) are inherited only if all inputs have them.
    """
    sets = [set(terms) for terms in inputs]
    union: set[Term] = set().union(*sets)
    shared = set.intersection(*sets) if sets else set()
    kept = {term for term in union if term.code not in PERMISSIVE or term in shared}
    if any(term.code != NO_RESTRICTION for term in kept):
        kept = {term for term in kept if term.code != NO_RESTRICTION}
    return list(sort_terms(kept))


def sort_terms(terms: Iterable[Term]) -> tuple[Term, ...]:
    """Return terms in their display order: by code."""
    return tuple(sorted(terms, key=lambda term: (term.code, term.detail)))


def today_utc() -> date:
    return datetime.now(UTC).date()


def contradictions(terms: Iterable[Term], name: str = "the terms") -> list[TermProblem]:
    """Return the reasons why the terms of one version cannot hold together."""
    version = TermsOf(name, tuple(terms))
    problems = _contradictions([version])
    others = [term for term in version.terms if term.code not in {NO_RESTRICTION, CLINICAL_CARE}]
    if version.with_code(NO_RESTRICTION) and others:
        problems.append(
            TermProblem(
                True,
                f"{name}: 'no restriction' ({NO_RESTRICTION}) contradicts {others[0].in_words()}",
            )
        )
    return problems


def check_merge(
    inputs: Sequence[TermsOf], *, today: date, institution: Iterable[str] = ()
) -> list[TermProblem]:
    """Return the objections of the inputs' terms to a merge, with forbidding ones first.

    `inputs` are those with known terms; `institution` are names of the merging site, if known.
    """
    problems = _contradictions(inputs)
    problems += _time_limits(inputs, today)
    problems += _other_institutions(inputs, {name.casefold() for name in institution if name})
    problems += _moratoria(inputs, today, forbids=False)
    problems += _left_to_people(inputs)
    return sorted(problems, key=lambda problem: not problem.forbids)


def check_clinical_care(inputs: Iterable[TermsOf]) -> list[TermProblem]:
    """Return the objections of inputs to a result that is declared for clinical care."""
    return [
        TermProblem(
            True,
            f"clinical use is not allowed by {source.name}: it is for research, without 'clinical "
            f"care use' ({CLINICAL_CARE})",
        )
        for source in inputs
        if source.terms and not source.with_code(CLINICAL_CARE, NO_RESTRICTION)
    ]


def check_redistribution(terms: Iterable[Term], *, today: date, name: str) -> list[TermProblem]:
    """Return the objections of a version's terms to passing its file on outside the pool.

    A moratorium that has not ended forbids it, because the recipient might not keep it; so do a
    time limit that has passed, and terms that name users, institutions or projects.
    """
    version = [TermsOf(name, tuple(terms))]
    problems = _time_limits(version, today) + _moratoria(version, today, forbids=True)
    problems += [
        TermProblem(
            True,
            f"{name}: {term.in_words()}; a recipient outside the pool is not known to be one of "
            "them",
        )
        for term in version[0].with_code(USERS, INSTITUTIONS, PROJECTS)
    ]
    problems += _left_to_people(version)
    return sorted(problems, key=lambda problem: not problem.forbids)


def _contradictions(inputs: Sequence[TermsOf]) -> list[TermProblem]:
    """Return contradictions: terms that together allow no use at all."""
    problems = []
    for code, noun in _LISTS.items():
        named = [(source.name, term) for source in inputs for term in source.with_code(code)]
        if named and not frozenset.intersection(*(term.choices for _, term in named)):
            details = "; ".join(f"{name}: {term.detail}" for name, term in named)
            problems.append(TermProblem(True, f"the terms have no {noun} in common ({details})"))
    only = _first(inputs, ANCESTRY_ONLY)
    against = _first(inputs, NO_ANCESTRY, HEALTH, DISEASE)
    if only and against:
        problems.append(
            TermProblem(
                True,
                f"{only[0]} is for ancestry research only, {against[0]} is not for that "
                f"({against[1].in_words()})",
            )
        )
    return problems


def _time_limits(inputs: Sequence[TermsOf], today: date) -> list[TermProblem]:
    return [
        TermProblem(True, f"{source.name}: its time limit has passed ({term.detail})")
        for source in inputs
        for term in source.with_code(TIME_LIMIT)
        if today > date.fromisoformat(term.detail)
    ]


def _moratoria(inputs: Sequence[TermsOf], today: date, *, forbids: bool) -> list[TermProblem]:
    return [
        TermProblem(forbids, f"{source.name}: results must not be published before {term.detail}")
        for source in inputs
        for term in source.with_code(MORATORIUM)
        if today < date.fromisoformat(term.detail)
    ]


def _other_institutions(inputs: Sequence[TermsOf], institution: set[str]) -> list[TermProblem]:
    if not institution:
        return []
    return [
        TermProblem(True, f"{source.name} is only for the institutions {term.detail}")
        for source in inputs
        for term in source.with_code(INSTITUTIONS)
        if not term.choices & institution
    ]


def _left_to_people(inputs: Sequence[TermsOf]) -> list[TermProblem]:
    judged = {NO_RESTRICTION, GENERAL, MORATORIUM, TIME_LIMIT, CLINICAL_CARE}
    shown = dict.fromkeys(
        (source.name, term) for source in inputs for term in source.terms if term.code not in judged
    )
    return [TermProblem(False, f"{name}: {term.in_words()}") for name, term in shown]


def _first(inputs: Sequence[TermsOf], *codes: str) -> tuple[str, Term] | None:
    for source in inputs:
        if terms := source.with_code(*codes):
            return source.name, terms[0]
    return None
