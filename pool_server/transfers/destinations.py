"""What a file becomes once it has arrived: a version of a model, or something else.

An upload says by its `purpose` which destination it has. Parts come in alike for all; completing
an upload asks the destination to check the file and to write down what it became.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from sqlalchemy.orm import Session

from pool_server.database.records import ModelVersionRecord, UploadRecord
from pool_server.http.identity import Caller
from pool_server.http.session import ServerParts
from pool_server.transfers.checking import CheckedModel, run_check
from pool_server.transfers.publishing import add_version

CheckedT = TypeVar("CheckedT")


@dataclass(frozen=True)
class Destination(Generic[CheckedT]):
    """How a file is checked and written down.

    Attributes
    ----------
    purpose : str
        The `purpose` of the uploads that come here.
    action : str
        What the audit calls it.
    check : callable
        Looks at the assembled file, in another process; raises a leaf of `RefusedError`.
    settle : callable
        Writes what the file became, within a transaction, and returns the version that it is,
        if it is one. A leaf of `ConflictError` raised here ends the upload as a refusal does.
    """

    purpose: str
    action: str
    check: Callable[[ServerParts, UploadRecord, Path], CheckedT]
    settle: Callable[[Session, Caller, UploadRecord, CheckedT], ModelVersionRecord | None]


def check_version(parts: ServerParts, upload: UploadRecord, path: Path) -> CheckedModel:
    return run_check(path, upload.file_name, upload.size_bytes, parts.settings)


def settle_version(
    session: Session, caller: Caller, upload: UploadRecord, checked: CheckedModel
) -> ModelVersionRecord:
    return add_version(session, caller, upload, upload.site.name, checked)


VERSION = Destination("version", "version.publish", check_version, settle_version)
