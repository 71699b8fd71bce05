"""Withdrawals of models, and what they affect."""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Iterator

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
from site_agent.pool.addresses import version_path
from site_agent.pool.connection import PoolConnection
from site_agent.pool.requests import build_request


class Withdrawals:
    """Withdrawals, and the files that they affect."""

    def __init__(self, connection: PoolConnection) -> None:
        self._connection = connection

    def preview(self, address: str | ModelAddress) -> WithdrawalPreview:
        """Return what a withdrawal would flag and who would be told; changes nothing."""
        path = f"{version_path(address)}/withdrawal-preview"
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
            One of a fixed list (`pool_server.wire.withdrawals.EFFECT_OF_REASON`).
        effect : str, optional
            ``refuse`` where the reason would only mean ``warn``.
        successor : str, optional
            Address of the version to use instead.

        Raises
        ------
        PoolClientError
            `ConflictError` where it is withdrawn already.
        """
        request = build_request(
            WithdrawalRequest,
            reason=reason,
            explanation=explanation,
            effect=effect,
            successor=successor,
        )
        return self._connection.post(
            f"{version_path(address)}/withdraw", WithdrawalResponse, request
        )

    def name_successor(
        self, address: str | ModelAddress, successor: str | ModelAddress
    ) -> SuccessorResponse:
        """Name the version that replaces another one of the site."""
        request = build_request(SuccessorRequest, successor=str(successor))
        path = f"{version_path(address)}/successors"
        return self._connection.post(path, SuccessorResponse, request, repeatable=True)

    def list(self, site: str = "") -> Iterator[Withdrawal]:
        """Yield the withdrawals of visible models, newest first."""
        return self._connection.pages(
            "/api/v1/withdrawals", WithdrawalPage, {"site": site} if site else None
        )

    def check_digests(self, digests: Iterable[str]) -> builtins.list[CheckedFile]:
        """Return those of these files that were withdrawn, or contain something that was."""
        request = build_request(CheckRequest, digests=[*digests])
        path = "/api/v1/withdrawals/check"
        return self._connection.post(path, CheckResponse, request, repeatable=True).items
