"""All that servers of tests need, loaded and read once in the process that they are forked from."""

from fastapi import FastAPI

from pool_server.app import list_routes
from tests.pool_server import server_process

__all__ = ["server_process"]

whole = FastAPI()
whole.router.routes.extend(list_routes())
# FastAPI reads the routes when the first of them is asked for.
whole.openapi()
