"""Signing uploads: a site's private key on this machine, and statements made with it.

Keys lie next to the profiles, one file for each pool and site, readable by their owner only::

    keys/<profile>/<site>.pem                           the current key (PKCS #8, unencrypted)
    keys/<profile>/replaced/<site>.<fingerprint>.pem    an earlier key

A file is never overwritten, because a lost key cannot be recovered.
"""

import json
import os
import re
import secrets
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from aggregators.errors import UnknownFormatError
from aggregators.formats import recognise
from aggregators.methods import parse_recipe
from aggregators.whole_file import private_opener
from pool_server.wire import signatures
from pool_server.wire.exports import PortableVersion
from pool_server.wire.merges import recipe_digest
from pool_server.wire.models import ModelVersionResponse
from pool_server.wire.names import NAME_PATTERN
from pool_server.wire.signatures import keys, statements
from pool_server.wire.uploads import UploadRequest
from site_agent.errors import InvalidInputError
from site_agent.work.files import portable_name

_SUFFIX = ".pem"
_KIND_OF_FORMAT = {
    "dlib-fhog-detector": "hog-svm",
    "dlib-shape-predictor": "ert",
    "poolctl-forest": "ert",
    "poolctl-forest-half": "ert",
}
"""The kind of files of a format, where a format has one kind only."""


@dataclass(frozen=True)
class SigningKey:
    """A site's key on this machine."""

    site: str
    path: Path
    key: keys.PrivateKey


def key_file(folder: Path, site: str) -> Path:
    """Return where the key of a site lies in the folder of a pool or profile."""
    if not re.fullmatch(NAME_PATTERN, site):
        raise InvalidInputError(f"{site!r} is not a site name")
    return folder / portable_name(f"{site}{_SUFFIX}")


def create_key(folder: Path, site: str, *, replace: bool = False) -> SigningKey:
    """Make a key pair; with `replace`, an existing key is kept under another name."""
    path = key_file(folder, site)
    made = SigningKey(site, path, keys.PrivateKey.generate())
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with open(temporary, "xb", opener=private_opener) as file:
            file.write(made.key.to_pem())
            file.flush()
            os.fsync(file.fileno())
        if replace:
            _set_aside(folder, site)
        # Unlike a rename, a link fails where something is.
        os.link(temporary, path)
    except FileExistsError:
        raise InvalidInputError(
            f"{path}: there is a key for site {site!r} already; with --force it is kept under "
            "another name and a new one is made"
        ) from None
    finally:
        temporary.unlink(missing_ok=True)
    return made


def load_key(folder: Path, site: str) -> SigningKey | None:
    """Return the key of a site; None if it has no key here."""
    path = key_file(folder, site)
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    # On Windows the folder of the user protects the file, and its mode says nothing.
    if sys.platform != "win32" and path.stat().st_mode & 0o077:
        raise InvalidInputError(
            f"{path}: others may read this private key; if nobody has, take that away with: "
            f"chmod 600 {path}"
        )
    try:
        return SigningKey(site, path, keys.PrivateKey.from_pem(content))
    except ValueError as error:
        raise InvalidInputError(f"{path}: {error}") from error


def facts_of_request(request: UploadRequest, path: Path) -> statements.VersionFacts:
    """Return the signable fields of an upload of `path`; its recipe must be canonical."""
    recipe = request.recipe
    inputs = [] if recipe is None else [str(entry["digest"]) for entry in recipe["inputs"]]
    return statements.VersionFacts(
        **_said_of(request),
        site=request.site,
        kind=kind_of(path),
        own_terms=frozenset((term.code, term.detail) for term in request.terms),
        inherited_terms=frozenset(),
        card_digest=statements.text_digest(request.card),
        recipe_digest=None if recipe is None else recipe_digest(recipe),
        parents=tuple(dict.fromkeys(entry for entry in inputs if entry != request.digest)),
        terms_are_settled=False,
    )


def _said_of(record: UploadRequest | ModelVersionResponse | PortableVersion) -> dict[str, Any]:
    """Return the signable fields of a version, alike for records of all kinds."""
    names = ("name", "file_name", "digest", "size_bytes", "description", "labels", "metrics")
    return {name: getattr(record, name) for name in names}


def facts_of_version(
    version: ModelVersionResponse | PortableVersion,
    *,
    card_digest: str | None,
    recipe_digest: str | None,
) -> statements.VersionFacts:
    """Return the fields of a version in a pool or export, except its card and its recipe."""
    signed = version.statement if isinstance(version, PortableVersion) else version.signed_by
    origin = None if signed is None else signed.origin
    parents = version.parents if isinstance(version, PortableVersion) else version.parent_digests
    return statements.VersionFacts(
        **_said_of(version),
        site=origin.partition("@")[0] if origin else version.site,
        kind=version.kind,
        own_terms=frozenset((t.code, t.detail) for t in version.terms if not t.inherited),
        inherited_terms=frozenset((t.code, t.detail) for t in version.terms if t.inherited),
        card_digest=card_digest,
        recipe_digest=recipe_digest,
        parents=tuple(parents),
        is_import=origin is not None,
    )


def sign_facts(facts: statements.VersionFacts, key: keys.PrivateKey) -> signatures.SignedStatement:
    """Sign all facts about a version."""
    try:
        envelope = statements.sign_statement(facts.statement(datetime.now(UTC)), key)
    except ValueError as error:
        raise InvalidInputError(f"the statement cannot be signed: {error}") from error
    return signatures.SignedStatement(envelope=envelope)


def kind_of(path: Path) -> str:
    """Return the kind of a model file if its first bytes show it; else an empty text."""
    try:
        return _KIND_OF_FORMAT.get(recognise(path).name, "")
    except UnknownFormatError:
        return ""


def canonical_recipe(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """Return a recipe in the form that the pool keeps."""
    return dict(json.loads(parse_recipe(json.dumps(dict(recipe))).to_json()))


def _set_aside(folder: Path, site: str) -> None:
    """Keep a key under the name of its fingerprint before it is replaced."""
    known = load_key(folder, site)
    if known is None:
        return
    aside = folder / "replaced"
    aside.mkdir(exist_ok=True, mode=0o700)
    kept = aside / f"{site}.{known.key.public.key_id[:16]}{_SUFFIX}"
    try:
        os.link(known.path, kept)
    except FileExistsError:
        if kept.read_bytes() != known.path.read_bytes():
            raise
    known.path.unlink()
