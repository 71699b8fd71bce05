"""The tables of the database: people, models, rounds, uploads and merges, and what was done."""

# ruff: noqa: F403

from pool_server.database.records.base import *
from pool_server.database.records.jobs import *
from pool_server.database.records.models import *
from pool_server.database.records.people import *
from pool_server.database.records.rounds import *
