"""The contract of destinations: the rules of a purpose of files in the pool."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Generic, Protocol, TypeVar

from sqlalchemy.orm import Session

from pool_server.database.records import ModelVersionRecord, UploadRecord
from pool_server.http.identity import Caller
from pool_server.http.session import ServerParts


class Offer(Protocol):
    """The claims about a file that every announcement contains; none is believed."""

    @property
    def site(self) -> str: ...
    @property
    def digest(self) -> str: ...
    @property
    def size_bytes(self) -> int: ...


OfferT = TypeVar("OfferT", bound=Offer)
CheckedT = TypeVar("CheckedT")


@dataclass(frozen=True)
class Announcement(Generic[OfferT]):
    """An offer, its caller, and the record made of it, which is not stored yet."""

    caller: Caller
    offer: OfferT
    upload: UploadRecord


@dataclass(frozen=True)
class Arrival(Generic[CheckedT]):
    """A file that has been received and checked."""

    caller: Caller
    upload: UploadRecord
    checked: CheckedT


@dataclass(frozen=True)
class Destination(ABC, Generic[OfferT, CheckedT]):
    """A destination of files: permission to send them, their checks, and their final form.

    Size limit, quota, storage and leases are the same everywhere
    (`pool_server.transfers.receiving`). The audit calls a file of this `purpose` by the `action`.
    """

    parts: ServerParts
    purpose: ClassVar[str]
    action: ClassVar[str]

    @abstractmethod
    def fill_in(self, announced: Announcement[OfferT]) -> None:
        """Write to the new record its name in this place, the file's name, and all else."""

    @abstractmethod
    def admit(self, session: Session, announced: Announcement[OfferT]) -> bool:
        """Raise unless the file may come; return True where it is here and nothing need be sent."""

    def accept_copy(
        self,
        session: Session,  # noqa: ARG002
        announced: Announcement[OfferT],  # noqa: ARG002
    ) -> bool:
        """Accept the file from bytes that the pool has elsewhere; False where they must be sent."""
        return False

    def renew(self, upload: UploadRecord, announced: Announcement[OfferT]) -> None:
        """Update an upload under way from a new announcement."""

    def belongs(self, upload: UploadRecord) -> bool:
        """Return whether an upload was announced for this very place."""
        return upload.purpose == self.purpose

    @abstractmethod
    def check(self, upload: UploadRecord, path: Path) -> CheckedT:
        """Look at the assembled file, in a limited child process."""

    @abstractmethod
    def accept(self, session: Session, arrived: Arrival[CheckedT]) -> ModelVersionRecord | None:
        """Write the records of a checked file, in a transaction; return the version, if any.

        Called again, also for a file that somebody else was faster with, it changes nothing.
        """
