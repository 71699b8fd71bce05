"""Letting in again who runs a pool and has lost its admin's token."""

from __future__ import annotations

from pool_server.database.engine import Database, write_with_retry
from pool_server.database.schema import require_newest_schema
from pool_server.people.tokens.service import recover_admin, with_secret
from pool_server.settings import PoolSettings
from pool_server.wire.people.tokens import TokenCreatedResponse


def make_admin_token(settings: PoolSettings) -> TokenCreatedResponse:
    """Make another admin token of the whole pool; those that are there stay as they are.

    Who can reach the database could change it anyway, so nothing more is asked. The audit tells
    of it. Servers may run meanwhile, and take the token at once.
    """
    require_newest_schema(settings)
    database = Database.open(settings)
    try:
        token, secret = write_with_retry(database, recover_admin)
    finally:
        database.close()
    return with_secret(token, secret)
