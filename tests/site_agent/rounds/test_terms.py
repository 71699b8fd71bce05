"""The terms of a round hold as its starter signed them; the pool cannot change them later."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from aggregators.formats import encode_model
from pool_server.wire.rounds import TERMS_TYPE, RoundResponse, RoundTerms, SecureTerms
from pool_server.wire.signatures.keys import seal
from site_agent import PoolClient
from site_agent.errors import ConflictError, ForbiddenError, PoolRefusedRequestError, SignatureError
from site_agent.networks.modules import new_network
from site_agent.pool.signing import create_key
from site_agent.rounds.terms import check_terms, pin_terms, start_round
from tests.pool_server.pool_driver import PoolDriver, pool_in_thread, upload
from tests.pool_server.rounds.round_driver import SITES, upload_base

STARTER, LAB, OTHER = SITES


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PoolDriver]:
    with pool_in_thread(tmp_path_factory.mktemp("pool")) as running:
        for site in SITES:
            running.member(site)
        yield running


@pytest.fixture
def lab(pool: PoolDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PoolClient]:
    monkeypatch.setenv("POOL_HOME", str(tmp_path / "lab"))
    with PoolClient(pool.url, pool.secret(LAB, "contributor")) as client:
        yield client


@pytest.fixture
def signed(pool: PoolDriver, lab: PoolClient, tmp_path: Path) -> RoundResponse:
    """Return a round with signed terms, as the lab sees it."""
    with PoolClient(pool.url, pool.secret(STARTER, "contributor")) as starter:
        key = starter.signatures.signing_key(STARTER)
        if key is None:
            key = create_key(starter.signatures.key_folder, STARTER)
            starter.signatures.register_key(key.key, STARTER, "key")
        _, address = upload_base(pool, f"signed-{tmp_path.name}"[:60], 3)
        deadline = datetime.now(UTC) + timedelta(hours=1)
        started = start_round(
            starter, address, SITES, deadline, options={"starts": "7"}, least_others=2
        )
    assert started.terms is not None
    return lab.rounds.get(started.round_id)


def test_sites_of_a_secure_round_count_equally_unless_its_starter_says_otherwise(
    pool: PoolDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody sees the numbers that a single site states, so no cap holds for them."""
    monkeypatch.setenv("POOL_HOME", str(tmp_path))
    for server in ("sum-1", "sum-2"):
        pool.member(server)
    upload(
        pool.member(STARTER),
        f"{STARTER}/secure-gaze",
        bytes(encode_model(new_network("gaze-lenet"))),
    )
    secure = SecureTerms(charter="1" * 64, servers=["sum-1", "sum-2"])
    deadline = datetime.now(UTC) + timedelta(hours=1)
    with PoolClient(pool.url, pool.secret(STARTER, "contributor")) as starter:
        differences = [
            start_round(
                starter, f"{STARTER}/secure-gaze", SITES, deadline, method="fedavg", **change
            ).options["mean"]
            for change in (
                {},
                {"secure": secure},
                {"secure": secure, "options": {"mean": "samples"}},
            )
        ]
    assert differences == ["samples", "sites", "samples"]


CHANGES: dict[str, Any] = {
    "base": {"base_digest": "0" * 64},
    "method": {"method": "fedavg"},
    "mode": {"mode": "level-by-level"},
    "options": {"options": {"starts": 7, "min_faces": 1}},
    "secure": {"secure": SecureTerms(charter="1" * 64, servers=["sum-1", "sum-2"])},
    "rounds": {"rounds_total": 100},
    "least_others": {"least_others": 1},
    "deadline": {"deadline": datetime.now(UTC) + timedelta(days=9)},
    "started_by": {"created_by": f"{OTHER}/laptop"},
    "first_round": {"round_id": "0123456789abcdef"},
}


def test_each_term_that_differs_from_the_signed_one_is_named(
    lab: PoolClient, signed: RoundResponse
) -> None:
    assert check_terms(lab, signed).started_by == STARTER
    for name, change in CHANGES.items():
        with pytest.raises(ConflictError, match=rf"not as {STARTER} signed it: {name} was"):
            check_terms(lab, signed.model_copy(update=change))
    fewer = signed.model_copy(update={"participants": signed.participants[:2]})
    with pytest.raises(ConflictError, match="sites was"):
        check_terms(lab, fewer)
    early = signed.model_copy(update={"deadline": signed.deadline - timedelta(minutes=5)})
    check_terms(lab, early)


def test_signatures_that_are_missing_or_of_others_are_refused(
    lab: PoolClient, signed: RoundResponse, tmp_path: Path
) -> None:
    foreign = create_key(tmp_path / "foreign", STARTER).key
    terms = RoundTerms.of(signed)
    replaced = signed.model_copy(update={"terms": seal(TERMS_TYPE, terms.to_bytes(), foreign)})
    with pytest.raises(SignatureError, match="not a known key"):
        check_terms(lab, replaced)
    stripped = signed.model_copy(update={"terms": None})
    check_terms(lab, stripped)
    check_terms(lab, signed)  # the starter's key is known from here on
    with pytest.raises(SignatureError, match="its terms are not signed"):
        check_terms(lab, stripped)


def test_a_result_is_taken_before_its_starter_signs_it(
    lab: PoolClient, signed: RoundResponse
) -> None:
    check_terms(lab, signed)
    version = lab.version(signed.base)
    with pytest.raises(SignatureError, match="is not signed, although"):
        lab.fetch(version)
    assert lab.fetch(version, may_be_unsigned=True).signature.status == "unsigned"


def test_terms_are_kept_as_they_were_seen_first(
    lab: PoolClient, signed: RoundResponse, tmp_path: Path
) -> None:
    place = tmp_path / "terms.json"
    unsigned = signed.model_copy(update={"terms": None})
    for round_ in (unsigned, signed, signed):
        pin_terms(round_, RoundTerms.of(round_), place)
    with pytest.raises(ConflictError, match="signed was true, and is false now"):
        pin_terms(unsigned, RoundTerms.of(unsigned), place)
    for change in (CHANGES["secure"], CHANGES["options"]):
        other = signed.model_copy(update=change)
        with pytest.raises(ConflictError, match="than when this site saw it first"):
            pin_terms(other, RoundTerms.of(other), place)


def test_the_pool_keeps_the_terms_of_the_round_and_of_its_starter_alone(
    lab: PoolClient, signed: RoundResponse, pool: PoolDriver, tmp_path: Path
) -> None:
    key = create_key(tmp_path / "own", LAB).key
    assert signed.terms is not None
    with pytest.raises(ForbiddenError):
        lab.rounds.sign(signed.round_id, signed.terms)
    other = RoundTerms.of(signed).model_copy(update={"rounds": 9})
    with (
        PoolClient(pool.url, pool.secret(STARTER, "contributor")) as starter,
        pytest.raises(PoolRefusedRequestError, match="are not those of round"),
    ):
        starter.rounds.sign(signed.round_id, seal(TERMS_TYPE, other.to_bytes(), key))
