"""Every error has one look on the wire."""

from __future__ import annotations

import inspect

import pytest

from pool_server import errors
from pool_server.errors import PoolError
from pool_server.http.error_responses import respond_to_pool_error
from pool_server.http.error_table import ERROR_TABLE


def leaves(root: type[PoolError]) -> set[type[PoolError]]:
    below = root.__subclasses__()
    return set().union(*map(leaves, below)) if below else {root}


def test_the_table_has_every_leaf_and_nothing_else() -> None:
    assert set(ERROR_TABLE) == leaves(PoolError)


def test_every_error_stands_in_the_tree_atop_the_module() -> None:
    tree = inspect.getdoc(errors) or ""
    for name, member in inspect.getmembers(errors, inspect.isclass):
        if issubclass(member, PoolError):
            assert name in tree


@pytest.mark.parametrize("error", ERROR_TABLE, ids=lambda error: error.__name__)
def test_statuses_and_codes_are_fit_for_programs(error: type[PoolError]) -> None:
    entry = ERROR_TABLE[error]
    assert 400 <= entry.status <= 599
    assert entry.code.replace("_", "").isalpha()
    assert entry.code == entry.code.lower()
    assert entry.text.endswith(".")


def test_what_shows_the_inside_of_the_server_stays_inside() -> None:
    answer = respond_to_pool_error(errors.StorageFailedError("cannot write /srv/secret/path"))
    assert b"/srv" not in bytes(answer.body)
    assert answer.status_code == 503
