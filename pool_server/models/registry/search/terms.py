"""The words that search entries are made of, and what a query asks of them.

A *term* is one word that a version has or has not; the view ``search_sources`` of the baseline
migration writes the same. Texts are in it as hexadecimal UTF-8, so that a term is letters and
digits only.

============================  =======================================================
``k`` KIND                    it is of that kind
``s`` SITE, ``n`` NAME        its model is of that site, has that name
``x`` state                   it is in that state
``y`` site number, state      it is in that state and of that site
``newest``                    no version of its model and state has a higher number, of those that
                              hold nothing withdrawn where there are any
``a`` site number             that site may see its model; ``aall``: every site may
``l`` KEY, ``l`` KEY=VALUE    it has that label, with that value
``m`` METHOD:KEY              it has that merge key
``w`` WORD                    its text has that word, of one or two letters or digits
============================  =======================================================

A query is a list of groups; of each group a version must have at least one term.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

from pool_server.http.identity import Caller
from pool_server.models.access import access_terms
from pool_server.models.registry.filters import LabelFilter, MergeKey, ModelQuery

TermGroups = tuple[tuple[str, ...], ...]
NEWEST = "newest"
_SHORT_WORD = re.compile(r"^[a-z0-9\x80-\U0010FFFF]{1,2}$")


def text_term(letter: str, text: str) -> str:
    """Return the term of a text."""
    return letter + text.encode("utf-8").hex()


def text_of(term: str) -> str:
    """Return the text in a term that `text_term` made."""
    return bytes.fromhex(term[1:]).decode("utf-8")


def number_of(term: str) -> int:
    """Return the number that stands for a term in PostgreSQL: 64 bits of its MD5, signed."""
    digest = hashlib.md5(term.encode("ascii"), usedforsecurity=False).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


def terms_of(
    caller: Caller, query: ModelQuery, merge_groups: Sequence[Sequence[MergeKey]] = ()
) -> TermGroups:
    """Return what a query asks of a version's terms, and who asks."""
    groups = access_terms(caller, query.state, latest=query.latest)
    if query.latest:
        groups.append((NEWEST,))
    for letter, text in (("k", query.kind), ("s", query.site), ("n", query.name)):
        if text is not None:
            groups.append((text_term(letter, text),))
    groups += [(label_term(each),) for each in query.labels if isinstance(each, LabelFilter)]
    groups += [
        tuple(dict.fromkeys(text_term("m", f"{each.method}:{each.key}") for each in group))
        for group in merge_groups
    ]
    groups += [short_word_terms(word) for word in query.words if is_short(word)]
    return tuple(dict.fromkeys(groups))


def label_term(wanted: LabelFilter) -> str:
    value = "" if wanted.value is None else f"={wanted.value}"
    return text_term("l", wanted.key + value)


def is_short(word: str) -> bool:
    """Return whether a word is looked for as a whole, by its term, not within other words."""
    return _SHORT_WORD.fullmatch(word.lower()) is not None


def short_word_terms(word: str) -> tuple[str, ...]:
    """Return the terms of a short word: SQLite knows upper and lower case of ASCII only."""
    ascii_lower = "".join(each.lower() if each.isascii() else each for each in word)
    return tuple(dict.fromkeys(text_term("w", each) for each in (word.lower(), ascii_lower)))
