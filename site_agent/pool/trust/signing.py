"""Signing what one uploads: the site's private key on this machine, and statements made with it.

Keys lie beside the profiles, one file for each pool and site, readable by their owner only::

    keys/<profile>/<site>.pem                           the key that signs (PKCS #8, unencrypted)
    keys/<profile>/replaced/<site>.<fingerprint>.pem    one that signs no more

A file is never overwritten: a key that is lost cannot be had again from anywhere.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from pool_server.wire.models.models import ModelVersionResponse
from pool_server.wire.models.recipes import recipe_digest
from pool_server.wire.names import NAME_PATTERN
from pool_server.wire.signatures.keys import PrivateKey
from pool_server.wire.signatures.signatures import SignedStatement
from pool_server.wire.signatures.statements import (
    ModelPredicate,
    StatedTerm,
    Statement,
    sign_statement,
)
from pool_server.wire.transfers.uploads import UploadRequest
from site_agent.errors import InvalidInputError

_SUFFIX = ".pem"
_KIND_OF_FORMAT = {
    "dlib-fhog-detector": "hog-svm",
    "dlib-shape-predictor": "ert",
    "poolctl-forest": "ert",
    "poolctl-forest-half": "ert",
}
"""What files of a format are for, where that is one thing only."""

Request = TypeVar("Request", bound=UploadRequest)


@dataclass(frozen=True)
class SigningKey:
    """A site's key on this machine."""

    site: str
    path: Path
    key: PrivateKey


def key_file(folder: Path, site: str) -> Path:
    """Return where the key of a site lies.

    Parameters
    ----------
    folder : Path
        That of a pool or profile (`profiles.key_folder`).

    Raises
    ------
    InvalidInputError
        `site` is no name of a site.
    """
    if not re.fullmatch(NAME_PATTERN, site):
        raise InvalidInputError(f"{site!r} is not a site name")
    return folder / f"{site}{_SUFFIX}"


def create_key(folder: Path, site: str, *, replace: bool = False) -> SigningKey:
    """Make a key pair.

    Parameters
    ----------
    replace : bool
        Keep an existing key under another name, and make a new one.

    Raises
    ------
    InvalidInputError
        There is one, and it is not to be replaced.
    """
    path = key_file(folder, site)
    made = SigningKey(site, path, PrivateKey.generate())
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(made.key.to_pem())
            file.flush()
            os.fsync(file.fileno())
        if replace:
            _set_aside(folder, site)
        # Unlike a rename, a link fails where something is.
        os.link(temporary, path)
    except FileExistsError:
        raise InvalidInputError(
            f"{path}: there is a key for site {site!r} already; with --replace it is kept under "
            "another name and a new one is made"
        ) from None
    finally:
        temporary.unlink(missing_ok=True)
    return made


def load_key(folder: Path, site: str) -> SigningKey | None:
    """Return the key of a site; None where there is none.

    Raises
    ------
    InvalidInputError
        The file is no key, or one that others can read.
    """
    path = key_file(folder, site)
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    if path.stat().st_mode & 0o077:
        raise InvalidInputError(
            f"{path}: others may read this private key; if nobody has, take that away with: "
            f"chmod 600 {path}"
        )
    try:
        return SigningKey(site, path, PrivateKey.from_pem(content))
    except ValueError as error:
        raise InvalidInputError(f"{path}: {error}") from error


def local_keys(folder: Path) -> list[SigningKey]:
    """Return the keys in a folder that sign, by site."""
    sites = [path.name.removesuffix(_SUFFIX) for path in sorted(folder.glob(f"*{_SUFFIX}"))]
    found = [load_key(folder, site) for site in sites]
    return [each for each in found if each is not None]


def signed_request(request: Request, path: Path, key: PrivateKey) -> Request:
    """Return an upload request with a signed statement of all that it says.

    Its recipe has to be canonical.

    Raises
    ------
    InvalidInputError
        The statement is too large to be signed.
    """
    recipe = request.recipe
    inputs = [] if recipe is None else [str(each["digest"]) for each in recipe["inputs"]]
    predicate = ModelPredicate(
        site=request.site,
        name=request.name,
        kind=kind_of(path),
        size_bytes=request.size_bytes,
        description=request.description,
        labels=request.labels,
        metrics=request.metrics,
        terms=tuple(StatedTerm(code=each.code, detail=each.detail) for each in request.terms),
        card_digest=_text_digest(request.card),
        recipe_digest=None if recipe is None else recipe_digest(recipe),
        parents=tuple(each for each in inputs if each != request.digest),
        signed_at=datetime.now(UTC),
    )
    statement = Statement.of(request.file_name, request.digest, predicate)
    return request.model_copy(update={"statement": _sign(statement, key)})


def sign_version(
    version: ModelVersionResponse, recipe: Mapping[str, Any] | None, card: str, key: PrivateKey
) -> SignedStatement:
    """Sign what the pool says of a version, for one that was published unsigned."""
    predicate = ModelPredicate(
        site=version.site,
        name=version.name,
        kind=version.kind,
        size_bytes=version.size_bytes,
        description=version.description,
        labels=version.labels,
        metrics=version.metrics,
        terms=tuple(
            StatedTerm(code=each.code, detail=each.detail)
            for each in version.terms
            if not each.inherited
        ),
        card_digest=_text_digest(card),
        recipe_digest=None if recipe is None else recipe_digest(recipe),
        parents=tuple(version.parent_digests),
        signed_at=datetime.now(UTC),
    )
    return _sign(Statement.of(version.file_name, version.digest, predicate), key)


def kind_of(path: Path) -> str:
    """Return what a model file is for, where its first bytes tell; empty where they do not."""
    from aggregators.errors import UnknownFormatError
    from aggregators.formats import recognise

    try:
        return _KIND_OF_FORMAT.get(recognise(path).name, "")
    except UnknownFormatError:
        return ""


def _sign(statement: Statement, key: PrivateKey) -> SignedStatement:
    try:
        return SignedStatement(envelope=sign_statement(statement, key))
    except ValueError as error:
        raise InvalidInputError(f"the statement cannot be signed: {error}") from error


def canonical_recipe(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """Return a recipe in the form that the pool keeps."""
    from aggregators.methods import parse_recipe

    return dict(json.loads(parse_recipe(json.dumps(dict(recipe))).to_json()))


def _text_digest(text: str) -> str | None:
    return hashlib.sha256(text.encode()).hexdigest() if text else None


def _set_aside(folder: Path, site: str) -> None:
    """Keep a key that is to be replaced under the name of its fingerprint."""
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
