"""Check whether a pool can run with its settings; list all problems at once."""

import difflib
import os
import shutil
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import ValidationError

from pool_server import errors, storage
from pool_server import settings as pool_settings
from pool_server.database.schema import require_served_schema
from pool_server.settings import is_this_machine
from pool_server.wire.errors import problem_words


@dataclass(frozen=True)
class Finding:
    """Something about a setting, as it stands in the file or the environment.

    A ``problem``: the pool cannot run so. A ``warning``: it can, and perhaps should not. The text
    never has a value that may be secret.
    """

    level: Literal["problem", "warning"]
    setting: str
    text: str


def _problem(field: str, text: str) -> Finding:
    return Finding("problem", pool_settings.setting_name(field), text)


def _warning(field: str, text: str) -> Finding:
    return Finding("warning", pool_settings.setting_name(field), text)


def check_configuration(**options: Any) -> tuple[pool_settings.PoolSettings | None, list[Finding]]:
    """Read the settings and try the folders, database and storage that they name.

    `options` override environment and file. The settings are None if they cannot be read.
    """
    findings = [*find_unknown_variables(os.environ), *_readable_secrets(os.environ)]
    try:
        settings = pool_settings.PoolSettings(**options)
    except ValidationError as error:
        return None, [*findings, *wrong_values(error)]
    checks = (_folder, _network, _database, _storage)
    return settings, [*findings, *(finding for check in checks for finding in check(settings))]


def wrong_values(error: ValidationError) -> Iterator[Finding]:
    """Yield the problem of each setting; values are not repeated, as they may hold passwords."""
    for problem in error.errors(include_url=False, include_input=False):
        field = "_".join(str(step) for step in problem["loc"])
        text = problem_words(problem, with_value=False)
        if problem["type"] == "extra_forbidden":
            text = f"there is no such setting{_nearest(field)}"
        yield _problem(field, text)


def find_unknown_variables(environment: Mapping[str, str]) -> Iterator[Finding]:
    """Yield a problem for each variable that is named like a setting and is none."""
    known = {
        f"{pool_settings.ENVIRONMENT_PREFIX}{field.upper()}"
        for field in pool_settings.PoolSettings.model_fields
    }
    known.add(pool_settings.CONFIG_VARIABLE)
    for name in sorted(environment):
        if name.startswith(pool_settings.ENVIRONMENT_PREFIX) and name not in known:
            field = name.removeprefix(pool_settings.ENVIRONMENT_PREFIX).lower()
            yield Finding("problem", name, f"there is no such setting{_nearest(field)}; unset it")


def _nearest(field: str) -> str:
    [*close] = difflib.get_close_matches(field, pool_settings.PoolSettings.model_fields, 1)
    return f" (did you mean {close[0]}?)" if close else ""


def _readable_secrets(environment: Mapping[str, str]) -> Iterator[Finding]:
    file = environment.get(pool_settings.CONFIG_VARIABLE, "")
    if file and Path(file).is_file() and Path(file).stat().st_mode & stat.S_IROTH:
        yield Finding(
            "warning",
            pool_settings.CONFIG_VARIABLE,
            f"everybody on this machine can read {file}; with a password in it: chmod 600 {file}",
        )


def _folder(settings: pool_settings.PoolSettings) -> Iterator[Finding]:
    folder = settings.data_folder
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK):
        yield _problem(
            "data_folder", f"{folder} cannot be written by this user (looked at {existing})"
        )
        return
    if folder.exists() and folder.stat().st_mode & (stat.S_IROTH | stat.S_IWOTH):
        yield _warning(
            "data_folder", f"everybody on this machine can look into {folder}; chmod 700 {folder}"
        )
    free = shutil.disk_usage(existing).free
    if settings.storage == "folder" and free < pool_settings.GIB:
        yield _warning("data_folder", f"only {free:,} bytes are free in {folder}")
    if settings.storage != "folder" and free < settings.max_model_bytes:
        merges = f", and up to {settings.merge_input_bytes:,} bytes of inputs for a merge"
        yield _warning(
            "data_folder",
            f"only {free:,} bytes are free in {folder}; each model that arrives is looked at "
            f"there, of up to {settings.max_model_bytes:,} bytes"
            f"{merges if settings.central_merges else ''}; make room, or lower max_model_bytes",
        )


def _network(settings: pool_settings.PoolSettings) -> Iterator[Finding]:
    if remark := clear_text_remark(settings):
        yield _warning("host", remark)
    if is_this_machine(settings.host) and settings.uses_postgresql and not settings.trusted_proxies:
        yield _warning(
            "trusted_proxies",
            "no reverse proxy is named: behind one, all requests seem to come from it, and one "
            "who guesses tokens locks everybody out",
        )
    for field in ("s3_endpoint_url", "s3_public_endpoint_url"):
        address = urlsplit(getattr(settings, field))
        if address.scheme == "http" and not is_this_machine(address.hostname or ""):
            yield _warning(field, "model files travel without encryption; use https")


def _database(settings: pool_settings.PoolSettings) -> Iterator[Finding]:
    if settings.uses_postgresql:
        url = settings.engine_url
        encrypted = {"require", "verify-ca", "verify-full"}
        if (
            not is_this_machine(url.host or "localhost")
            and url.query.get("sslmode") not in encrypted
        ):
            yield _warning(
                "database_url",
                "the database is on another machine; add ?sslmode=verify-full to its address",
            )
    elif not settings.database_file.exists():
        return  # made by the first start
    try:
        require_served_schema(settings)
    except errors.PoolError as error:
        hint = f" ({error.hint})" if error.hint else ""
        yield _problem("database_url", f"{error.message}{hint}")


def _storage(settings: pool_settings.PoolSettings) -> Iterator[Finding]:
    unused = sorted(name for name in settings.model_fields_set if name.startswith("s3_"))
    if unused and settings.storage != "s3":
        yield _warning(
            "storage",
            f"model files lie in a folder, for storage is {settings.storage!r}; "
            f"{', '.join(map(pool_settings.setting_name, unused))} count only with storage = 's3'",
        )
    if settings.uses_postgresql and settings.storage == "folder":
        yield _warning(
            "storage",
            "model files lie in a folder: all server processes must share it (one machine, or a "
            "file system of the network)",
        )
    if settings.storage == "folder" and not settings.data_folder.exists():
        return
    try:
        storage.open_storage(settings).check()
    except errors.PoolError as error:
        hint = f" ({error.hint})" if error.hint else ""
        yield _problem("storage", f"{error.message}{hint}")


def clear_text_remark(settings: pool_settings.PoolSettings) -> str:
    """Say how to encrypt the connections of a pool that others reach without; empty otherwise."""
    if is_this_machine(settings.host) or settings.trusted_proxies or settings.speaks_tls:
        return ""
    return (
        f"the pool listens on {settings.host} without encryption, and tokens travel with every "
        "request: serve with --self-signed or --tls-certificate, or on 127.0.0.1 behind a reverse "
        "proxy that speaks TLS and is named in trusted_proxies"
    )
