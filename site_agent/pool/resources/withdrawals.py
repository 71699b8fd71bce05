"""What a site asks of its pool about withdrawals; `PoolClient` has all of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any

from pool_server.wire.models.models import LineageResponse
from pool_server.wire.names import ModelAddress
from pool_server.wire.withdrawals import (
    CheckedFile,
    CheckRequest,
    CheckResponse,
    SuccessorRequest,
    SuccessorResponse,
    Withdrawal,
    WithdrawalEffect,
    WithdrawalPage,
    WithdrawalPreview,
    WithdrawalReason,
    WithdrawalRequest,
    WithdrawalResponse,
)
from site_agent.pool.addresses import parse_address, version_path
from site_agent.pool.connection import PoolConnection
from site_agent.pool.requests import build_request


class PoolWithdrawals(ABC):
    """The part of `PoolClient` that is about what was withdrawn, and what holds it."""

    @property
    @abstractmethod
    def _connection(self) -> PoolConnection: ...

    def preview_withdrawal(self, address: str | ModelAddress) -> WithdrawalPreview:
        """Return what a withdrawal would flag, and who would hear of it; changes nothing."""
        where = parse_address(address) if isinstance(address, str) else address
        path = f"{version_path(where)}/withdrawal-preview"
        return self._connection.get(path, WithdrawalPreview)

    def withdraw(
        self,
        address: str | ModelAddress,
        reason: WithdrawalReason,
        *,
        explanation: str = "",
        effect: WithdrawalEffect | None = None,
        successor: str | None = None,
    ) -> WithdrawalResponse:
        """Withdraw a version, for good.

        Parameters
        ----------
        reason : str
            Of a fixed list (`pool_server.wire.withdrawals.EFFECT_OF_REASON`).
        effect : str, optional
            ``refuse`` where the reason alone would only mean ``warn``.
        successor : str, optional
            Address of a version to use instead.

        Raises
        ------
        PoolClientError
            `ConflictError` where it was withdrawn before.
        """
        where = parse_address(address) if isinstance(address, str) else address
        request = build_request(
            WithdrawalRequest,
            reason=reason,
            explanation=explanation,
            effect=effect,
            successor=successor,
        )
        return self._connection.post(f"{version_path(where)}/withdraw", WithdrawalResponse, request)

    def name_successor(
        self, address: str | ModelAddress, successor: str | ModelAddress
    ) -> SuccessorResponse:
        """Say that one version replaces another, which is of one's own site."""
        where = parse_address(address) if isinstance(address, str) else address
        other = parse_address(successor) if isinstance(successor, str) else successor
        request = build_request(SuccessorRequest, successor=str(other))
        path = f"{version_path(where)}/successors"
        return self._connection.post(path, SuccessorResponse, request, repeatable=True)

    def withdrawals(self, site: str = "", *, page_size: int = 100) -> Iterator[Withdrawal]:
        """Yield what was withdrawn of the models that one may see, newest first."""
        parameters: dict[str, Any] = {"limit": page_size} | ({"site": site} if site else {})
        while True:
            page = self._connection.get("/api/v1/withdrawals", WithdrawalPage, parameters)
            yield from page.items
            if not page.next_cursor:
                return
            parameters["cursor"] = page.next_cursor

    def check_digests(self, digests: Iterable[str]) -> list[CheckedFile]:
        """Return which of these files were withdrawn, or hold something that was."""
        request = build_request(CheckRequest, digests=list(digests))
        path = "/api/v1/withdrawals/check"
        return self._connection.post(path, CheckResponse, request, repeatable=True).items

    def lineage_of_digest(self, digest: str, *, recipes: bool = False) -> LineageResponse:
        """Return the family of a file, which need not be in the pool; with every recipe if asked.

        Raises
        ------
        NotFoundError
            The pool does not know the digest.
        """
        parameters = {"recipes": "true"} if recipes else None
        return self._connection.get(f"/api/v1/lineage/{digest}", LineageResponse, parameters)
