"""Which pool, and with which token."""

import stat
from pathlib import Path

import pytest

from site_agent.errors import InvalidInputError
from site_agent.pool import profiles
from site_agent.pool.profiles import Profile


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("POOL_ENDPOINT", "POOL_TOKEN", "POOL_CACHE", "POOL_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("POOL_HOME", str(tmp_path))
    return tmp_path


def test_a_stored_profile_is_active_and_its_token_is_for_the_owner_only(home: Path) -> None:
    profiles.store_profile(Profile("work", "https://pool.example.org", "secret-1"))
    assert profiles.load_profile() == Profile("work", "https://pool.example.org", "secret-1")
    assert stat.S_IMODE((home / "tokens.toml").stat().st_mode) == 0o600
    assert "secret-1" not in (home / "config.toml").read_text()


def test_switching_and_forgetting() -> None:
    profiles.store_profile(Profile("work", "https://pool.example.org", "secret-1"))
    profiles.store_profile(Profile("here", "http://127.0.0.1:8710", "secret-2"))
    assert profiles.profile_names() == (["here", "work"], "here")
    assert profiles.switch_profile("work").token == "secret-1"
    assert profiles.load_profile().name == "work"
    assert profiles.forget_token("work")
    assert not profiles.forget_token("work")
    assert profiles.load_profile() == Profile("work", "https://pool.example.org", "")
    assert profiles.load_profile("here").token == "secret-2"


def test_the_environment_goes_before_the_files(monkeypatch: pytest.MonkeyPatch) -> None:
    profiles.store_profile(Profile("work", "https://pool.example.org", "secret-1"))
    monkeypatch.setenv("POOL_TOKEN", "secret-3")
    assert profiles.load_profile().token == "secret-3"
    assert profiles.load_profile("work").token == "secret-1", "a named profile is meant as it is"
    monkeypatch.delenv("POOL_TOKEN")
    monkeypatch.setenv("POOL_ENDPOINT", "http://127.0.0.1:8710/")
    assert profiles.load_profile().endpoint == "http://127.0.0.1:8710"


def test_a_token_never_goes_to_another_pool(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    profiles.store_profile(Profile("work", "https://pool.example.org", "secret-1"))
    monkeypatch.setenv("POOL_ENDPOINT", "https://elsewhere.example.org")
    assert profiles.load_profile().token == ""
    monkeypatch.delenv("POOL_ENDPOINT")
    config = home / "config.toml"
    config.write_text(config.read_text().replace("pool.example.org", "elsewhere.example.org"))
    assert profiles.load_profile().token == ""


def test_an_unknown_profile_and_a_broken_file_are_named(home: Path) -> None:
    with pytest.raises(InvalidInputError, match="no profile 'work'; stored: none"):
        profiles.load_profile("work")
    (home / "config.toml").write_text("this is = = no TOML")
    with pytest.raises(InvalidInputError, match=r"config\.toml"):
        profiles.load_profile()


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [
        ("http://127.0.0.1:8710/", "http://127.0.0.1:8710"),
        ("localhost:8000", "http://localhost:8000"),
        ("pool.example.org", "https://pool.example.org"),
    ],
)
def test_addresses_of_pools_have_one_form(text: str, endpoint: str) -> None:
    assert profiles.normalise_endpoint(text) == endpoint


@pytest.mark.parametrize("text", ["ftp://x", "http://", "", "https://a?b=c", "https://u:p@host"])
def test_what_is_no_address_of_a_pool_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match="expected for example"):
        profiles.normalise_endpoint(text)
