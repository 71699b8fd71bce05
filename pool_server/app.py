"""The server as an ASGI application: the only place where its parts are wired together."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache, partial

from fastapi import APIRouter, FastAPI
from sqlalchemy.orm import configure_mappers
from starlette.routing import BaseRoute, Match, Route
from starlette.types import Scope

import pool_server.lineage.family as lineage
import pool_server.merges.service as merges
import pool_server.pages.endpoints as pages
import pool_server.registry.endpoints as registry
import pool_server.rounds.endpoints as rounds
import pool_server.secure.endpoints as secure
import pool_server.transfers.endpoints as transfers
from pool_server import evaluations
from pool_server.activity import audit, events
from pool_server.database.engine import Database, write_with_retry
from pool_server.database.schema import SchemaChange, require_served_schema, upgrade_database
from pool_server.errors import StartError
from pool_server.http import metrics, middleware, rate_limits, session
from pool_server.http.error_responses import USUAL_RESPONSES, install_error_handlers
from pool_server.http.paths import API_PREFIX
from pool_server.jobs.background import sweep_in_background
from pool_server.jobs.check_slots import CheckSlots
from pool_server.lineage import withdrawals
from pool_server.merges.running import merge_in_background, recover_merges
from pool_server.models import cards, curation, descriptions, exports, pictures, sharing
from pool_server.pages.showing import ErrorPages
from pool_server.pages.visitor import is_known_sender
from pool_server.people import devices, invitations, sites, tokens
from pool_server.people.sign_on import renew_sign_ons
from pool_server.rounds.finishing import finish_round
from pool_server.settings import PoolSettings
from pool_server.signatures import keys, statements
from pool_server.storage import open_storage
from pool_server.transfers.receiving import recover_uploads, sweep_uploads

ROUTERS: tuple[APIRouter, ...] = (
    registry.router,
    pictures.router,
    sharing.router,
    curation.router,
    cards.router,
    descriptions.router,
    evaluations.router,
    lineage.router,
    withdrawals.router,
    keys.router,
    statements.router,
    exports.router,
    transfers.router,
    # Before that of merges: ``/merges/fit`` is the name of no merge.
    merges.fit_router,
    merges.router,
    rounds.router,
    secure.router,
    events.router,
    audit.router,
    sites.router,
    sites.user_router,
    invitations.router,
    tokens.router,
    devices.router,
)

DESCRIPTION = """
Sites share trained sub-models here, never images. Each model has labels, metrics, a fingerprint
that the server read from the file, and, if it was merged, a recipe that makes the same bytes again.

Send `Authorization: Bearer TOKEN` with every request but those under *operations*. Every answer of
400 and more has the form `{"error": {"code", "message", "hint", "details", "request_id"}}`; the
code is stable, the texts are for people.
"""


def open_parts(settings: PoolSettings) -> session.ServerParts:
    """Open the database and the storage that the settings name."""
    database, storage = Database.open(settings), open_storage(settings)
    return session.ServerParts(
        settings=settings,
        database=database,
        storage=storage,
        metrics=metrics.PoolMetrics(database, storage),
    )


@cache
def list_routes() -> tuple[BaseRoute, ...]:
    """Return the routes of the API and of the pages, made once: FastAPI takes long to read them."""
    routes = FastAPI(openapi_url=None, responses=USUAL_RESPONSES)
    for routers, prefix in ((ROUTERS, API_PREFIX), (pages.ROUTERS, "")):
        for router in routers:
            routes.include_router(router, prefix=prefix)
            pass_over_others(router, prefix)
    return tuple(routes.router.routes)


def pass_over_others(router: APIRouter, prefix: str) -> None:
    """Let a router refuse paths of others by how they begin; to try each route takes long."""
    paths = [route.path for route in router.routes if isinstance(route, Route)]
    begins = tuple({prefix + path.partition("{")[0] for path in paths})
    try_routes = router.matches

    def matches(scope: Scope) -> tuple[Match, Scope]:
        return try_routes(scope) if scope["path"].startswith(begins) else (Match.NONE, {})

    router.matches = matches  # type: ignore[method-assign]


def create_app(settings: PoolSettings) -> FastAPI:
    """Return the server as an ASGI application.

    The database must have the newest schema (`upgrade_database`), and no other process may serve
    the same data folder; `pool_server.server.run_server` sees to both.
    """
    parts = open_parts(settings)
    app = FastAPI(
        title="poolctl pool",
        version=sites.pool_version(),
        summary="A pool of face models shared between research sites",
        description=DESCRIPTION.strip(),
        docs_url=None,
        redoc_url=None,
        lifespan=serve_parts,
    )
    app.state.parts = parts
    app.state.rate_limits = rate_limits.RateLimits(settings.tries_per_minute)
    app.state.traffic = session.Traffic()
    app.state.check_slots = CheckSlots()
    app.state.drawings = pictures.Drawings()
    app.state.readiness = session.Readiness(parts)
    app.router.routes.extend(list_routes())
    install_error_handlers(app)
    app.add_middleware(
        middleware.RequestContext,
        max_request_bytes=settings.max_request_bytes,
        metrics=parts.metrics,
        traffic=app.state.traffic,
        is_known=partial(is_known_sender, parts),
    )
    app.add_middleware(ErrorPages)
    configure_mappers()
    return app


@asynccontextmanager
async def serve_parts(app: FastAPI) -> AsyncIterator[None]:
    """Recover from a kill, sweep from time to time, and close the parts at the end."""
    parts: session.ServerParts = app.state.parts
    await asyncio.to_thread(recover_uploads, parts)
    await asyncio.to_thread(recover_merges, parts)
    try:
        async with (
            sweep_in_background("uploads", partial(sweep_uploads, parts), interval_s=600.0),
            sweep_in_background(
                "secure sessions", partial(secure.delete_ended_sessions, parts), interval_s=3600.0
            ),
            sweep_in_background("log-ins", partial(renew_sign_ons, parts), interval_s=300.0),
            merge_in_background(parts),
            merge_in_background(parts, finish_round, of_rounds=True),
        ):
            yield
    finally:
        parts.database.close()


def prepare_database(settings: PoolSettings) -> str | None:
    """See to it that the database can be served; return as `create_first_admin`.

    An embedded pool brings its own up to date. One that several processes share is only looked
    at: which process may change it, and when, is for an admin to say.
    """
    if settings.uses_postgresql:
        require_served_schema(settings)
        return None
    return create_first_admin(settings)


def create_first_admin(settings: PoolSettings) -> str | None:
    """Set a pool up as `set_up_database`; return the secret of its first admin token, if new."""
    return set_up_database(settings)[1]


def set_up_database(settings: PoolSettings) -> tuple[SchemaChange, str | None]:
    """Bring the schema up to date, and give an empty pool its first admin token.

    Its secret is returned, to be shown this once; None when the pool was set up before. Files
    without any record are of a restore that was interrupted, or of a database that is lost: raises
    `StartError`, because a new pool would let `poolctl admin gc` remove them.
    """
    change = upgrade_database(settings)
    database = Database.open(settings)
    try:
        with database.read() as session:
            is_new = not sites.find_sites(session)
        stray = next(open_storage(settings).published_digests(), None) if is_new else None
        if stray is not None:
            raise StartError(
                f"the database {settings.database_place} has no pool, but the storage has files "
                f"of one, among them {stray}",
                code="pool_not_empty",
                hint="If `poolctl admin restore` was interrupted, run it again. If the database "
                "was lost, put it back, or restore a backup into an empty folder or bucket.",
            )
        return change, write_with_retry(database, tokens.create_first_admin)
    finally:
        database.close()
