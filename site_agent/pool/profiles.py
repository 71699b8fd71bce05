"""Logins: the pools and their tokens, in ``config.toml``, the token file and the environment.

``config.toml`` is for people to read; tokens stand apart in ``tokens.toml`` (mode 0600), each
next to the address of its pool, so that a changed address never receives it.

Environment, read when used: ``POOL_ENDPOINT`` and ``POOL_TOKEN`` go before the files;
``POOL_HOME`` is the folder of everything, ``POOL_CACHE`` that of the cache; ``POOL_OFFLINE=1``
forbids the network.
"""

import os
import tomllib
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import tomli_w

from aggregators.whole_file import write_whole
from site_agent.errors import InvalidInputError
from site_agent.own_folders import config_folder


@dataclass(frozen=True)
class Profile:
    """A pool (``https://pool.example.org``) and the token for it; empty where not known."""

    name: str
    endpoint: str
    token: str


def config_file() -> Path:
    """Return the path of ``config.toml``."""
    return config_folder() / "config.toml"


def key_folder(name: str, endpoint: str) -> Path:
    """Return the folder of the private keys for a pool, next to the profiles.

    Keys belong to a stored profile. Without one for that address, they belong to the pool's host
    and port, which is also the default name of a profile.
    """
    stored = table(read_toml(config_file()), "profiles")
    if name not in stored or table(stored, name).get("endpoint") != endpoint:
        name = host_of(endpoint)
    # A profile is called as its owner likes; its folder must not lead anywhere else.
    folder = quote(name, safe="")
    return config_folder() / "keys" / (folder if folder.strip(".") else f"%{folder}")


def secure_folder() -> Path:
    """Return the folder of the key, charters and ledger of secure sums."""
    return config_folder() / "secure"


def privacy_folder() -> Path:
    """Return the folder of the ledger of the privacy that the site's data have spent."""
    return config_folder() / "privacy"


def rounds_folder() -> Path:
    """Return the folder of a site's ledger of rounds, and of its secret."""
    return config_folder() / "rounds"


def personal_folder() -> Path:
    """Return the folder of the personal parts of networks, which stay at this site."""
    return config_folder() / "personal"


def usual_landmarks() -> str:
    """Return the landmark model to find blinks with where none is named; empty if not chosen."""
    return str(table(read_toml(config_file()), "blink").get("landmarks", ""))


def store_usual_landmarks(model: str) -> None:
    """Keep a model's path or address as ``[blink] landmarks``."""
    config = read_toml(config_file())
    config["blink"] = table(config, "blink") | {"landmarks": model}
    write_private_toml(config, config_file())


def is_offline() -> bool:
    """Return whether ``POOL_OFFLINE`` forbids the network."""
    return os.environ.get("POOL_OFFLINE", "").lower() not in {"", "0", "false", "no"}


def is_this_machine(url: str) -> bool:
    """Return whether an address leads to this machine alone."""
    return urlsplit(url).hostname in {"localhost", "127.0.0.1", "::1"}


def normalise_endpoint(text: str) -> str:
    """Return the address of a pool in its one form.

    ``localhost:8000`` becomes ``http://localhost:8000``; for other hosts without a scheme,
    ``https`` is assumed.
    """
    address = text.strip()
    address = address if address.endswith("://") else address.rstrip("/")
    if "://" not in address:
        address = f"{'http' if is_this_machine(f'//{address}') else 'https'}://{address}"
    parts = urlsplit(address)
    require_visible(address, "the address of the pool")
    if parts.fragment:
        raise InvalidInputError(
            f"{text!r} holds a fingerprint, which is given once: poolctl auth login '{text}'"
        )
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.username:
        raise InvalidInputError(
            f"{text!r} is not the address of a pool; expected for example "
            "https://pool.example.org or http://127.0.0.1:8710"
        )
    return address


def require_visible(text: str, name: str) -> str:
    """Return a token or an address; refuse characters that copying added, such as U+200B."""
    for place, character in enumerate(text, start=1):
        if not ("!" <= character <= "~" or (character.isalnum() and character.isprintable())):
            raise InvalidInputError(
                f"{name}: found {unicodedata.name(character, 'an invisible character')} "
                f"(U+{ord(character):04X}) as character {place}",
                hint="copying from a page or a letter adds such characters; copy it again",
            )
    return text


def host_of(endpoint: str) -> str:
    """Return host and port of a pool as a name that a folder can have."""
    return urlsplit(endpoint).netloc.lower().replace(":", "-").replace("[", "").replace("]", "")


def load_profile(name: str | None = None) -> Profile:
    """Return the pool to talk to: of a stored profile, by default the active one."""
    config = read_toml(config_file())
    stored = table(config, "profiles")
    if name is not None and name not in stored:
        known = ", ".join(sorted(stored)) or "none"
        raise InvalidInputError(
            f"no profile {name!r}; stored: {known}; make one with: "
            f"poolctl auth login URL --profile {name}"
        )
    chosen = name or str(config.get("active", ""))
    endpoint = str(table(stored, chosen).get("endpoint", ""))
    if name is not None:
        return Profile(chosen, endpoint, _stored_token(chosen, endpoint))
    if os.environ.get("POOL_ENDPOINT"):
        endpoint_ = normalise_endpoint(os.environ["POOL_ENDPOINT"])
        if endpoint_ != endpoint:  # perhaps the pool of a login that is not active
            chosen = next((n for n in sorted(stored) if _stored_token(n, endpoint_)), chosen)
        endpoint = endpoint_
    token = require_visible(os.environ.get("POOL_TOKEN", "").strip(), "POOL_TOKEN")
    return Profile(chosen, endpoint, token or _stored_token(chosen, endpoint))


def profile_names() -> tuple[list[str], str]:
    """Return the stored profiles' names and which one is active (``""`` for none)."""
    config = read_toml(config_file())
    return sorted(table(config, "profiles")), str(config.get("active", ""))


def store_profile(profile: Profile) -> None:
    """Keep a login and make it the active one."""
    config = read_toml(config_file())
    config["profiles"] = table(config, "profiles") | {profile.name: {"endpoint": profile.endpoint}}
    config["active"] = profile.name
    tokens = read_toml(_token_file())
    tokens[profile.name] = {"endpoint": profile.endpoint, "token": profile.token}
    # The token first: an active profile without one would look like a login and be none.
    write_private_toml(tokens, _token_file())
    write_private_toml(config, config_file())


def forget_token(name: str) -> bool:
    """Remove the token of a profile; the profile itself stays. Return whether there was one."""
    tokens = read_toml(_token_file())
    if tokens.pop(name, None) is None:
        return False
    write_private_toml(tokens, _token_file())
    return True


def switch_profile(name: str) -> Profile:
    """Make a stored profile the active one."""
    profile = load_profile(name)
    config = read_toml(config_file())
    config["active"] = name
    write_private_toml(config, config_file())
    return profile


def _token_file() -> Path:
    return config_folder() / "tokens.toml"


def _stored_token(name: str, endpoint: str) -> str:
    entry = table(read_toml(_token_file()), name)
    return str(entry.get("token", "")) if entry.get("endpoint") == endpoint else ""


def table(parent: dict[str, Any], key: str, file: Path | None = None) -> dict[str, Any]:
    """Return a table of a TOML file, by default of ``config.toml``; empty where it is absent."""
    value = parent.get(key, {})
    if not isinstance(value, dict):
        raise InvalidInputError(
            f"{file or config_file()}: {key!r} should be a table, found {value!r}"
        )
    return value


def read_toml(path: Path) -> dict[str, Any]:
    """Return the content of a file; empty if it is absent."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"{path}: cannot be read as TOML: {error}") from error


def write_private_toml(content: dict[str, Any], path: Path) -> None:
    """Replace a file as a whole; only the owner can read it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, tomli_w.dumps(content), mode=0o600)
