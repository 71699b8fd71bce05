"""Terms of data use: their spelling, and their consequences."""

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pool_server.wire.data_use import DATA_USE_TERMS, TEXT, Term, label_of
from pool_server.wire.data_use_rules import (
    PERMISSIVE,
    TermsOf,
    check_clinical_care,
    check_merge,
    check_redistribution,
    contradictions,
    inherited_terms,
)

TODAY = date(2026, 6, 15)
DETAILS = {"none": "", "date": "2027-01-31", "words": "one, two"}

terms = st.sampled_from(
    [Term(code=term.code, detail=DETAILS[term.detail]) for term in DATA_USE_TERMS]
    + [Term.parse("DS=three", TODAY), Term.parse("IS=site-a", TODAY), Term.parse("text=x", TODAY)]
)


def read(*texts: str) -> tuple[Term, ...]:
    return tuple(Term.parse(word, TODAY) for word in texts)


def test_the_codes_are_those_of_the_ontology() -> None:
    # duo.csv of release 2021-02-23: all classes but the two roots.
    assert {int(term.code[4:]) for term in DATA_USE_TERMS if term.code != TEXT} == {
        4, 6, 7, 11, 12, 15, 16, 18, 19, 20, 21, 22, 24, 25, 26, 27, 28, 29, 42, 43, 44, 45, 46,
    }  # fmt: skip
    permissions = {term.shorthand for term in DATA_USE_TERMS if term.kind == "permission"}
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
def test_unknown_terms_are_named_with_the_expected_form(text: str, expected: str) -> None:
    with pytest.raises(ValueError, match=expected) as refusal:
        Term.parse(text, TODAY)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("inputs", "forbidden_by"),
    [
        ([["GRU"], ["GRU", "IRB"]], []),
        ([["DS=ataxia"], ["DS=autism"]], ["no diseases in common"]),
        ([["POA"], ["HMB"]], ["ancestry research only"]),
        ([["TS=2026-06-14"]], ["time limit has passed"]),
        ([["TS=2026-06-15"]], []),
        ([["IS=site-a"], ["IS=site-b"]], ["no institutions in common", "only for the inst"]),
        ([["IS=site-a,site-b"], ["IS=site-b"]], []),
        ([["MOR=2027-01-31"]], []),
    ],
    ids=str,
)
def test_forbidden_merges_name_their_terms(
    inputs: list[list[str]], forbidden_by: list[str]
) -> None:
    named = [TermsOf(f"m{number}", read(*texts)) for number, texts in enumerate(inputs)]
    problems = check_merge(named, today=TODAY, institution=["site-b", "B lab"])
    messages = [problem.message for problem in problems if problem.forbids]
    assert len(messages) == len(forbidden_by)
    assert all(reason in message for reason, message in zip(forbidden_by, messages, strict=True))
    assert problems == sorted(problems, key=lambda item: not item.forbids)


def test_clinical_care_needs_inputs_that_allow_it() -> None:
    inputs = [
        TermsOf(name, read(*texts))
        for name, texts in {"a": ["GRU"], "b": ["GRU", "CC"], "c": ["NRES"], "d": []}.items()
    ]
    [problem] = check_clinical_care(inputs)
    assert problem.forbids
    assert "clinical use is not allowed by a" in problem.message


def test_terms_that_only_people_can_judge_are_shown() -> None:
    texts = ("IRB", "GS=Europe", "MOR=2027-01-31", "DS=ataxia", "NCU", "text=Cite us")
    shown = check_merge([TermsOf("m", read(*texts))], today=TODAY)
    assert not any(problem.forbids for problem in shown)
    details = ("2027-01-31", "ataxia", "ethics", "Europe", "non-commercial", "Cite us")
    assert {text for text in details for problem in shown if text in problem.message} == {*details}
    assert len(shown) == len(details)


@pytest.mark.parametrize(
    ("texts", "forbidden"),
    [
        (["GRU", "NCU", "IRB"], False),
        (["MOR=2026-06-16"], True),
        (["MOR=2026-06-15"], False),
        (["TS=2026-06-14"], True),
        (["IS=site-a"], True),
    ],
    ids=str,
)
def test_terms_can_forbid_redistribution(texts: list[str], forbidden: bool) -> None:
    problems = check_redistribution(read(*texts), today=TODAY, name="a model")
    assert any(problem.forbids for problem in problems) is forbidden


@pytest.mark.parametrize(
    ("texts", "count"), [(["GRU", "IRB"], 0), (["NRES", "NCU"], 1), (["IS=a", "IS=b"], 1)], ids=str
)
def test_contradictory_terms_are_found(texts: list[str], count: int) -> None:
    assert len(contradictions(read(*texts))) == count


@given(st.lists(st.lists(terms, max_size=4), max_size=5))
def test_nothing_that_binds_is_lost_in_a_merge(inputs: list[list[Term]]) -> None:
    inherited = set(inherited_terms(inputs))
    given_terms = {item for some in inputs for item in some}
    assert inherited <= given_terms
    assert {term for term in given_terms if term.code not in PERMISSIVE} <= inherited
    for term in inherited:
        if term.code in PERMISSIVE:
            assert all(term in some for some in inputs)
    # Merging what was merged changes nothing, in whatever order.
    assert set(inherited_terms([*inputs[::-1], list(inherited)])) >= {
        term for term in inherited if term.code not in PERMISSIVE
    }
