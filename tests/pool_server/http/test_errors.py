"""Every error has one look on the wire."""

import pytest

from pool_server.errors import ConflictError, PoolError, StartError, StorageFailedError
from pool_server.http.error_responses import error_text, respond_to_pool_error


def below(root: type[PoolError]) -> list[type[PoolError]]:
    return [error for kind in root.__subclasses__() for error in (kind, *below(kind))]


@pytest.mark.parametrize("error", below(PoolError), ids=lambda error: error.__name__)
def test_statuses_and_codes_are_fit_for_programs(error: type[PoolError]) -> None:
    assert 400 <= error.status <= 599
    assert error.code.replace("_", "").isalpha()
    assert error.code == error.code.lower()
    assert error_text(error).endswith(".")


def test_an_error_may_have_a_code_of_its_own() -> None:
    error = ConflictError("the site is there already", code="site_exists")
    assert (error.status, error.code) == (409, "site_exists")


@pytest.mark.parametrize("kind", [StorageFailedError, StartError])
def test_internal_paths_are_not_sent(kind: type[PoolError]) -> None:
    answer = respond_to_pool_error(kind("cannot write /srv/secret/path", code="folder_unusable"))
    assert b"/srv" not in bytes(answer.body)
    assert b"folder_unusable" not in bytes(answer.body)
    assert answer.status_code == 503
