"""Options for terms of use, and what lies beside models about them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from cli.frame.addresses import ModelFile, known_version
from cli.frame.errors import InputMissingError, UsageError
from cli.frame.output import Invocation

if TYPE_CHECKING:
    from pool_server.wire.data_use import Term
    from pool_server.wire.data_use_rules import IntendedUse

TermOption = Annotated[
    Sequence[str],
    typer.Option(
        metavar="CODE[=DETAIL]",
        help="A term of use, for example DUO:0000042 or MOR=2027-01-31; repeatable.",
    ),
]
PurposeOption = Annotated[
    Sequence[str],
    typer.Option(
        metavar="WORD",
        help="Purpose of the merge: research, health, ancestry, methods, clinical, "
        "commercial, or disease=NAME. The merge is refused if the terms of an input "
        "exclude it.",
    ),
]
_DISEASE = "disease="


def read_terms(words: Sequence[str], file: Path | None = None) -> list[Term]:
    """Return the terms of the command line and of a file."""
    if not words and file is None:
        return []
    from pool_server.wire.data_use import Term
    from site_agent.pool.restrictions import read_terms_file, today_utc

    terms: dict[Term, None] = {}
    for word in words:
        try:
            terms[Term.parse(word, today_utc())] = None
        except ValueError as error:
            raise UsageError(f"--term {word}: {error}") from error
    if file is not None:
        if not file.is_file():
            raise InputMissingError(f"{file}: no such file; expected one term per line")
        terms |= dict.fromkeys(read_terms_file(file))
    return list(terms)


def terms_file_beside(model: Path) -> Path | None:
    """Return the file of terms beside a model (``<model>.terms``), if there is one."""
    path = model.with_name(f"{model.name}.terms")
    return path if path.is_file() else None


def read_purposes(words: Sequence[str]) -> IntendedUse | None:
    """Return what a merge is for; None where nothing was said."""
    if not words:
        return None
    from pool_server.wire.data_use_rules import IntendedUse, Purpose

    diseases = [word.removeprefix(_DISEASE).strip() for word in words if word.startswith(_DISEASE)]
    purposes = [word for word in words if not word.startswith(_DISEASE)]
    known = get_args(Purpose)
    for word in purposes:
        if word not in known:
            raise UsageError(f"--purpose {word}: expected {', '.join(known)}, or disease=NAME")
    if not all(diseases):
        raise UsageError("--purpose disease=: expected the name of a disease after it")
    return IntendedUse.model_validate(
        {"purposes": tuple(dict.fromkeys(purposes)), "diseases": tuple(diseases)}
    )


def check_terms(
    invocation: Invocation,
    files: Sequence[ModelFile],
    use: IntendedUse | None,
    *,
    despite: bool = False,
) -> None:
    """Refuse a merge that the terms of its inputs forbid, and tell what only people can judge.

    Known are the terms of versions in the pool, of local files that were downloaded from it, and
    those in the files beside a model.
    """
    from pool_server.wire.data_use_rules import TermsOf
    from site_agent.errors import TermsForbidError
    from site_agent.pool.restrictions import read_terms_file, require_mergeable, terms_of_version

    inputs = []
    for file in files:
        version = known_version(file)
        terms = {} if version is None else dict.fromkeys(terms_of_version(version))
        beside = None if file.version is not None else terms_file_beside(file.path)
        if beside is not None:
            terms |= dict.fromkeys(read_terms_file(beside))
        if version is not None or beside is not None:
            inputs.append(TermsOf(file.word, tuple(terms)))
    try:
        notices = require_mergeable(inputs, use)
    except TermsForbidError as error:
        if not despite:
            raise
        invocation.warn(str(error))
        return
    for notice in notices:
        invocation.note(f"terms: {notice}")
