"""Every error has one look on the wire."""

from __future__ import annotations

import pytest

from pool_server.errors import ConflictError, PoolError, StartError, StorageFailedError
from pool_server.http.error_responses import respond_to_pool_error
from pool_server.http.error_table import ERROR_TABLE, entry_of


def leaves(root: type[PoolError]) -> set[type[PoolError]]:
    below = root.__subclasses__()
    return set().union(*map(leaves, below)) if below else {root}


def test_every_class_has_an_entry() -> None:
    without = {kind for kind in leaves(PoolError) if not issubclass(kind, tuple(ERROR_TABLE))}
    assert without == set()


@pytest.mark.parametrize("error", ERROR_TABLE, ids=lambda error: error.__name__)
def test_statuses_and_codes_are_fit_for_programs(error: type[PoolError]) -> None:
    entry = ERROR_TABLE[error]
    assert 400 <= entry.status <= 599
    assert entry.code.replace("_", "").isalpha()
    assert entry.code == entry.code.lower()
    assert entry.text.endswith(".")


def test_an_error_may_have_a_code_of_its_own() -> None:
    entry = entry_of(ConflictError("the site is there already", code="site_exists"))
    assert (entry.status, entry.code) == (409, "site_exists")


@pytest.mark.parametrize("kind", [StorageFailedError, StartError])
def test_internal_paths_are_not_sent(kind: type[PoolError]) -> None:
    answer = respond_to_pool_error(kind("cannot write /srv/secret/path", code="folder_unusable"))
    assert b"/srv" not in bytes(answer.body)
    assert b"folder_unusable" not in bytes(answer.body)
    assert answer.status_code == 503
