"""Terms of data use: how they are written, and what follows from them."""

from __future__ import annotations

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pool_server.wire.data_use import DATA_USE_TERMS, TEXT, Term, label_of
from pool_server.wire.data_use_rules import (
    PERMISSIVE,
    IntendedUse,
    TermsOf,
    check_merge,
    check_redistribution,
    contradictions,
    inherited_terms,
)

TODAY = date(2026, 6, 15)
DETAILS = {"none": "", "date": "2027-01-31", "words": "one, two"}

terms = st.sampled_from(
    [Term(code=each.code, detail=DETAILS[each.detail]) for each in DATA_USE_TERMS]
    + [Term.parse("DS=three", TODAY), Term.parse("IS=site-a", TODAY), Term.parse("text=x", TODAY)]
)


def read(*words: str) -> tuple[Term, ...]:
    return tuple(Term.parse(word, TODAY) for word in words)


def test_the_codes_are_those_of_the_ontology() -> None:
    # duo.csv of release 2021-02-23: all classes but the two roots.
    assert {int(each.code[4:]) for each in DATA_USE_TERMS if each.code != TEXT} == {
        4, 6, 7, 11, 12, 15, 16, 18, 19, 20, 21, 22, 24, 25, 26, 27, 28, 29, 42, 43, 44, 45, 46,
    }  # fmt: skip
    permissions = {each.shorthand for each in DATA_USE_TERMS if each.kind == "permission"}
    assert permissions == {"NRES", "GRU", "HMB", "DS", "POA"}
    assert label_of("DUO:0000024") == "publication moratorium"


@pytest.mark.parametrize(
    ("text", "code", "detail"),
    [
        ("DUO:0000042", "DUO:0000042", ""),
        ("MOR=2027-01-31", "DUO:0000024", "2027-01-31"),
        ("DUO:0000025=8", "DUO:0000025", "2027-02-15"),
        ("TS = 2030-12-31", "DUO:0000025", "2030-12-31"),
        ("text=Cite us = please", "text", "Cite us = please"),
    ],
)
def test_terms_are_read(text: str, code: str, detail: str) -> None:
    assert Term.parse(text, TODAY) == Term(code=code, detail=detail)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("DUO:9999999", "models vocabulary"),
        ("MOR=next year", "a date after it"),
        ("GRU=x", "takes no detail"),
        ("DS", "the disease"),
    ],
)
def test_what_is_no_term_is_named_with_what_was_expected(text: str, expected: str) -> None:
    with pytest.raises(ValueError, match=expected) as refusal:
        Term.parse(text, TODAY)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("inputs", "use", "forbidden_by"),
    [
        ([["GRU"], ["GRU", "IRB"]], IntendedUse(), []),
        ([["NCU"], []], IntendedUse(purposes=("commercial",)), ["DUO:0000046"]),
        (
            [["NPUNCU"], ["NPU"]], IntendedUse(purposes=("commercial",)),
            ["DUO:0000018", "DUO:0000045"],
        ),
        ([["DS=ataxia"], ["GRU"]], IntendedUse(purposes=("research",)), ["DUO:0000007"]),
        ([["DS=ataxia"], ["GRU"]], IntendedUse(diseases=("autism",)), ["DUO:0000007"]),
        ([["DS=ataxia"], ["DS=autism"]], IntendedUse(), ["DUO:0000007"]),
        ([["NMDS"]], IntendedUse(purposes=("methods",)), ["DUO:0000015"]),
        ([["GRU"], ["GRU", "CC"]], IntendedUse(purposes=("clinical",)), ["DUO:0000043"]),
        ([["TS=2026-06-14"]], IntendedUse(), ["DUO:0000025"]),
        ([["TS=2026-06-15"]], IntendedUse(), []),
        ([["IS=site-a"], ["IS=site-b"]], IntendedUse(), ["DUO:0000028", "DUO:0000028"]),
        ([["IS=site-a,site-b"], ["IS=site-b"]], IntendedUse(), []),
        ([["MOR=2027-01-31"]], IntendedUse(purposes=("research",)), []),
    ],
    ids=str,
)  # fmt: skip
def test_merges(inputs: list[list[str]], use: IntendedUse, forbidden_by: list[str]) -> None:
    named = [TermsOf(f"m{number}", read(*words)) for number, words in enumerate(inputs)]
    problems = check_merge(named, use, today=TODAY, institution=["site-b", "B lab"])
    assert sorted(each.codes[0] for each in problems if each.forbids) == sorted(forbidden_by)
    assert problems == sorted(problems, key=lambda each: not each.forbids)


def test_what_only_people_can_judge_is_shown() -> None:
    shown = check_merge(
        [TermsOf("m", read("IRB", "GS=Europe", "MOR=2027-01-31", "text=Cite us"))], today=TODAY
    )
    assert not any(each.forbids for each in shown)
    assert {each.codes[0] for each in shown} == {
        "DUO:0000021", "DUO:0000022", "DUO:0000024", "text",
    }  # fmt: skip
    narrowed = check_merge([TermsOf("a", read("DS=x")), TermsOf("b", read("GRU"))], today=TODAY)
    assert [(each.forbids, each.codes) for each in narrowed] == [
        (False, ("DUO:0000007", "DUO:0000042"))
    ]


@pytest.mark.parametrize(
    ("words", "forbidden"),
    [
        (["GRU", "NCU", "IRB"], False),
        (["MOR=2026-06-16"], True),
        (["MOR=2026-06-15"], False),
        (["TS=2026-06-14"], True),
        (["IS=site-a"], True),
    ],
    ids=str,
)
def test_redistribution(words: list[str], forbidden: bool) -> None:
    problems = check_redistribution(read(*words), today=TODAY, name="a model")
    assert any(each.forbids for each in problems) is forbidden


@pytest.mark.parametrize(
    ("words", "count"), [(["GRU", "IRB"], 0), (["NRES", "NCU"], 1), (["IS=a", "IS=b"], 1)], ids=str
)
def test_contradictions(words: list[str], count: int) -> None:
    assert len(contradictions(read(*words))) == count


@given(st.lists(st.lists(terms, max_size=4), max_size=5))
def test_nothing_that_binds_is_lost_in_a_merge(inputs: list[list[Term]]) -> None:
    inherited = set(inherited_terms(inputs))
    given_terms = {each for some in inputs for each in some}
    assert inherited <= given_terms
    assert {each for each in given_terms if each.code not in PERMISSIVE} <= inherited
    for each in inherited:
        if each.code in PERMISSIVE:
            assert all(each in some for some in inputs)
    # Merging what was merged changes nothing, in whatever order.
    assert set(inherited_terms([*inputs[::-1], list(inherited)])) >= {
        each for each in inherited if each.code not in PERMISSIVE
    }
