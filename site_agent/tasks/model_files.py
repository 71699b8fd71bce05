"""Words that name a model: a file here, or an address in the pool."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from aggregators.formats import file_digest
from pool_server.wire.models import ModelVersionResponse
from pool_server.wire.names import ModelAddress
from site_agent.errors import InvalidInputError, NotFoundError, NotLoggedInError
from site_agent.pool.cache import ModelCache
from site_agent.pool.client import Downloaded, PoolClient
from site_agent.pool.restrictions import warning_of
from site_agent.pool.verification import Verification
from site_agent.tasks.caller import Caller
from site_agent.work.files import portable_name

SUFFIX_OF_FORMAT = {
    "dlib-fhog-detector": ".svm",
    "dlib-shape-predictor": ".dat",
    "poolctl-forest": ".forest",
    "poolctl-forest-half": ".forest",
    "safetensors": ".safetensors",
    "poolctl-sparse": ".sparse",
}
"""Suffixes of downloaded files; a test compares them with `aggregators.formats`."""


_FILE_SUFFIXES = {*SUFFIX_OF_FORMAT.values(), ".contribution", ".json", ".xml"}


def is_address(word: str) -> bool:
    """Return whether a word names a model in the pool, not a file.

    ``pool://...`` always does. ``site/name`` and ``name`` do unless a file of that name exists. A
    word with the suffix of a model file names a file, even a missing one, if its folder exists.
    """
    if word.startswith("pool://"):
        return True
    is_bare = "/" not in word
    if Path(word).exists() or (Path(word).suffix in _FILE_SUFFIXES and Path(word).parent.is_dir()):
        return False
    try:
        ModelAddress.parse(f"own/{word}" if is_bare else word)
    except ValueError:
        return False
    return True


def whole_id(word: str, ids: Iterable[str], noun: str, listed_by: str) -> str:
    """Return the only identifier that starts with a word."""
    hint = f"{listed_by} lists them"
    if not re.fullmatch("[0-9a-f]+", word):
        raise InvalidInputError(
            f"{word!r} is not a {noun}: expected hexadecimal digits, the first ones or all",
            hint=hint,
        )
    matching = sorted({known for known in ids if known.startswith(word)})
    if not matching:
        raise NotFoundError(f"no {noun} begins with {word}", hint=hint)
    if len(matching) > 1 and word not in matching:
        listed = ", ".join(matching)
        raise InvalidInputError(f"{len(matching)} begin with {word}, expected one: {listed}")
    return matching[0]


@dataclass(frozen=True)
class ModelFile:
    """A model that is on this machine."""

    word: str
    path: Path
    version: ModelVersionResponse | None = None


def model_files(caller: Caller, names: Sequence[str], *, to_merge: bool = False) -> list[ModelFile]:
    """Return the files that the words name, fetched from the pool where need be.

    With `to_merge`, only models that the site may merge are fetched.
    """
    files: dict[str, ModelFile] = {}
    addresses = []
    for word in names:
        if is_address(word):
            addresses.append(word)
        elif Path(word).is_file():
            files[word] = ModelFile(word, Path(word))
        else:
            what = (
                "a folder"
                if Path(word).is_dir()
                else "no such file, and not an address [SITE/]NAME"
            )
            raise FileNotFoundError(f"{word}: {what}; expected a model file")
    if addresses:
        with caller.pool() as pool:
            for word in dict.fromkeys(addresses):
                version = _version(pool, word)
                if to_merge:
                    pool.require_merge_right(version)
                downloaded = fetch(caller, pool, version)
                files[word] = ModelFile(word, downloaded.path, downloaded.version)
    return [files[word] for word in names]


def _version(pool: PoolClient, word: str) -> ModelVersionResponse:
    try:
        return pool.version(word)
    except (NotFoundError, NotLoggedInError) as error:
        if "/" in word:
            raise
        raise FileNotFoundError(
            f"{word}: no such file, and no such model of your own site: {error}"
        ) from error


def model_file(caller: Caller, word: str) -> ModelFile:
    """Return the file that one word names."""
    return model_files(caller, [word])[0]


def known_version(file: ModelFile) -> ModelVersionResponse | None:
    """Return the version of a file, also of a local one that was downloaded from the pool."""
    if file.version is not None:
        return file.version
    candidates = ModelCache().versions_of_size(file.path.stat().st_size)
    if not candidates:
        return None
    digest = file_digest(file.path)
    matching = [version for version in candidates if version["digest"] == digest]
    return ModelVersionResponse.model_validate(matching[0]) if matching else None


def fetch(caller: Caller, pool: PoolClient, version: ModelVersionResponse) -> Downloaded:
    """Bring one version into the cache, with a progress bar; warn of one that was withdrawn."""
    with caller.progress(f"download {version.address}") as report:
        downloaded = pool.fetch(version, progress=report)
    note_standing(caller, version, downloaded.signature)
    return downloaded


def note_standing(caller: Caller, version: ModelVersionResponse, signature: Verification) -> None:
    """Print the remarks on a version: a new key, a doubt of its signature, a withdrawal."""
    if signature.note:
        caller.note(signature.note)
    for warning in (signature.warning, warning_of(version)):
        if warning:
            caller.warn(warning)


def file_name_of(version: ModelVersionResponse) -> str:
    """Return the file name of a downloaded version: ``SITE--NAME--vN.suffix``."""
    suffix = SUFFIX_OF_FORMAT.get(version.format) or Path(version.file_name).suffix
    return portable_name(f"{version.site}--{version.name}--v{version.version}{suffix}")
