"""All that servers of tests need, loaded and read once in the process that they are forked from."""

import gc

from fastapi import FastAPI

from pool_server.app import list_routes
from tests.pool_server.server_process import empty_database

whole = FastAPI()
whole.router.routes.extend(list_routes())
# FastAPI reads the routes when the first of them is asked for.
whole.openapi()
empty_database()
# Loaded objects are not looked through again by every server.
gc.collect()
gc.freeze()
