"""Attacks on the log-in by institutes: by strangers, by other providers, and by the network."""

import base64
import json
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from pool_server.errors import ProviderFailedError
from pool_server.people import providers
from pool_server.settings import SignOnProvider
from tests.pool_server.people.sign_on.conftest import Consortium, running_consortium, settings_of
from tests.pool_server.people.sign_on.openid_provider import make_key


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Consortium]:
    with running_consortium(tmp_path_factory.mktemp("attacked")) as consortium:
        yield consortium


@pytest.fixture
def attacked(shared: Consortium) -> Iterator[Consortium]:
    """A pool that lets in the honest staff of `uni`, and providers without lies."""
    for provider in (shared.uni, shared.orcid):
        honest = type(provider)(issuer=provider.issuer, codes=provider.codes)
        vars(provider).update(vars(honest))
        provider.claims = {"sub": "person-1", "affiliation": "staff@uni"}
    providers.open_provider.cache_clear()
    yield shared
    # Whatever was tried, nobody but the one member of the staff got in.
    assert set(shared.users()) <= {"person-1"}


def refusal(consortium: Consortium, **answer: str) -> str:
    """Return the page of a refused log-in, with other parameters in the answer."""
    browser = consortium.browser()
    page = consortium.come_back(browser, consortium.begin(browser) | answer)
    assert page.status_code in {401, 403, 503}, page.headers
    assert browser.get("/account").status_code == 303
    return page.text


def test_the_honest_provider_is_believed(attacked: Consortium) -> None:
    assert attacked.log_in(attacked.browser()).status_code == 303


@pytest.mark.parametrize(
    ("lies", "reason"),
    [
        ({"iss": "https://elsewhere.example"}, "iss"),
        ({"iss": None}, "iss"),
        ({"aud": "another-client"}, "aud"),
        ({"aud": ["the-pool", "another-client"]}, "another client"),
        ({"aud": ["the-pool", "x"], "azp": "x"}, "another client"),
        ({"azp": "another-client"}, "another client"),
        ({"nonce": "of-another-log-in"}, "nonce"),
        ({"nonce": None}, "nonce"),
        ({"exp": None}, "exp"),
        ({"sub": None}, "sub"),
        ({"sub": ""}, "sub"),
        ({"sub": "x" * 256}, "too long"),
        ({"sub": "person-2"}, "different persons"),
    ],
    ids=str,
)
def test_an_id_token_for_anything_else_is_refused(
    attacked: Consortium, lies: dict[str, Any], reason: str
) -> None:
    attacked.uni.lies = lies
    assert reason in refusal(attacked)


@pytest.mark.parametrize(
    ("claim", "from_now_s", "reason"),
    [("exp", -90, "expired"), ("iat", 900, "future"), ("nbf", 900, "not yet valid")],
)
def test_an_id_token_of_another_time_is_refused(
    attacked: Consortium, claim: str, from_now_s: int, reason: str
) -> None:
    attacked.uni.lies = {claim: int(time.time()) + from_now_s}
    assert reason in refusal(attacked)


def test_clocks_may_differ_by_less_than_a_minute(attacked: Consortium) -> None:
    now = int(time.time())
    attacked.uni.lies = {"iat": now + 30, "exp": now - 30}
    assert attacked.log_in(attacked.browser()).status_code == 303


@pytest.mark.parametrize("algorithm", ["none", "HS256"])
def test_only_signatures_by_a_public_key_count(attacked: Consortium, algorithm: str) -> None:
    attacked.uni.algorithm = algorithm
    # Also not where the description allows them.
    attacked.uni.description = {"id_token_signing_alg_values_supported": [algorithm]}
    assert "ID token is not valid" in refusal(attacked)


def test_a_secret_key_among_the_public_ones_is_no_key(attacked: Consortium) -> None:
    key = {"kty": "oct", "kid": "first", "k": base64.urlsafe_b64encode(b"known" * 8).decode()}
    attacked.uni.answers["/jwks_uri"] = (200, json.dumps({"keys": [key]}).encode())
    assert refusal(attacked)


def test_keys_rotate_and_forged_names_of_keys_cause_no_flood(
    attacked: Consortium, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert attacked.log_in(attacked.browser()).status_code == 303
    attacked.uni.key = make_key("second")
    # Too soon after the last time: a forger could name a new key with every token.
    before = attacked.uni.asked.count("/jwks_uri")
    for _ in range(3):
        assert refusal(attacked)
    assert attacked.uni.asked.count("/jwks_uri") == before
    monkeypatch.setattr(providers, "KEYS_LEAST_AGE_S", 0.0)
    assert attacked.log_in(attacked.browser()).status_code == 303


def test_an_answer_counts_only_in_the_browser_that_asked(attacked: Consortium) -> None:
    attacker, victim = attacked.browser(), attacked.browser()
    planted = attacked.begin(attacker)
    attacked.begin(victim)
    page = attacked.come_back(victim, planted)
    assert (page.status_code, victim.get("/account").status_code) == (401, 303)
    assert "did not begin" in page.text
    # A browser without any cookie is no better off.
    assert attacked.come_back(attacked.browser(), planted).status_code == 401


def test_an_answer_counts_once_even_if_the_provider_takes_codes_twice(attacked: Consortium) -> None:
    attacked.uni.takes_codes_twice = True
    browser = attacked.browser()
    answer = attacked.begin(browser)
    assert attacked.come_back(browser, answer).status_code == 303
    assert attacked.come_back(browser, answer).status_code == 401


def test_a_stolen_code_is_worthless_in_another_log_in(attacked: Consortium) -> None:
    stolen = attacked.begin(attacked.browser())
    assert "has ended or was used" in refusal(attacked, code=stolen["code"])


def test_an_old_or_changed_state_is_refused(
    attacked: Consortium, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser = attacked.browser()
    answer = attacked.begin(browser)
    content, seal = answer["state"].split(".")
    for state in (
        "",
        ".",
        content,
        f"{content}.",
        f".{seal}",
        f"A{content}.{seal}",
        "\u00e9.\u00e9",
    ):
        assert attacked.come_back(browser, answer | {"state": state}).status_code == 401
    monkeypatch.setattr("pool_server.people.sign_on.STATE_LIFETIME_S", -1)
    assert "took too long" in attacked.come_back(browser, answer).text


def test_one_provider_cannot_answer_for_another(attacked: Consortium) -> None:
    # RFC 9207: the answer names its sender.
    assert "comes from" in refusal(attacked, iss=attacked.orcid.issuer)
    browser = attacked.browser()
    answer = attacked.begin(browser)
    del answer["iss"]
    assert "comes from no issuer" in attacked.come_back(browser, answer).text
    # Where the provider names none, each still has an address of its own to come back to.
    for provider in (attacked.uni, attacked.orcid):
        provider.description = {"authorization_response_iss_parameter_supported": False}
    providers.open_provider.cache_clear()
    answer = attacked.begin(browser)
    del answer["iss"]
    assert "another institute" in attacked.come_back(browser, answer, "orcid").text
    assert "/token_endpoint" not in attacked.orcid.asked


def test_the_same_subject_at_another_issuer_is_another_person(attacked: Consortium) -> None:
    assert attacked.log_in(attacked.browser()).status_code == 303
    assert attacked.log_in(attacked.browser(), "orcid").status_code == 403


def test_nobody_is_led_to_another_site(attacked: Consortium) -> None:
    entered = attacked.log_in(attacked.browser(), next="/\t/evil.example")
    assert (entered.status_code, entered.headers["location"]) == (303, "/")


def test_words_of_a_provider_are_no_markup(attacked: Consortium) -> None:
    browser = attacked.browser()
    answer = attacked.begin(browser)
    del answer["code"]
    page = attacked.come_back(browser, answer | {"error": "<script>alert(1)</script>"})
    assert page.status_code == 401
    assert "<script>alert" not in page.text
    attacked.uni.claims = {"sub": "<img src=x>"}
    page = attacked.log_in(attacked.browser())
    assert page.status_code == 403
    assert "<img" not in page.text


def open_named(attacked: Consortium, **description: str) -> providers.Provider:
    attacked.uni.description = description
    return providers.Provider(SignOnProvider(**settings_of("uni", attacked.uni)))


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("http://localhost:1/keys", "internal network"),
        ("http://169.254.169.254/latest", "internal network"),
        ("http://10.0.0.1/keys", "internal network"),
        ("http://[::1]/keys", "internal network"),
        ("http://[::ffff:10.0.0.1]/keys", "internal network"),
        ("http://0/keys", "internal network"),
        ("file:///etc/passwd", "no usable jwks_uri"),
        ("ftp://127.0.0.1/keys", "no usable jwks_uri"),
    ],
)
def test_no_provider_leads_the_pool_into_an_internal_network(
    attacked: Consortium, address: str, reason: str
) -> None:
    provider = open_named(attacked, jwks_uri=address)
    with pytest.raises(ProviderFailedError, match=reason):
        provider._fetch_keys(0)


def test_redirects_floods_and_foreign_descriptions_are_refused(attacked: Consortium) -> None:
    provider = open_named(attacked)
    attacked.uni.answers["/jwks_uri"] = (302, b"http://127.0.0.1:1/keys")
    with pytest.raises(ProviderFailedError, match="does not answer as a provider"):
        provider._fetch_keys(0)
    attacked.uni.answers["/jwks_uri"] = (200, b" " * (providers.MOST_BYTES + 1))
    with pytest.raises(ProviderFailedError, match="too long"):
        provider._fetch_keys(0)
    for content in (b"[" * 100_000, b"[]", b"{", b"\xff", b'{"keys": 7}', b'{"keys": [7]}'):
        attacked.uni.answers["/jwks_uri"] = (200, content)
        assert refusal(attacked)
    with pytest.raises(ProviderFailedError, match="describes itself as"):
        open_named(attacked, issuer="https://elsewhere.example")._describe()


def test_nothing_secret_is_in_the_address_of_the_provider(attacked: Consortium) -> None:
    browser = attacked.browser()
    address = browser.get("/login/with/uni").headers["location"]
    query = parse_qs(urlsplit(address).query)
    assert query["code_challenge_method"] == ["S256"]
    assert browser.cookie is not None
    assert browser.cookie not in address
    assert len({query[name][0] for name in ("state", "nonce", "code_challenge")}) == 3
