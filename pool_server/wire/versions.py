"""The version of the API, by which pools and clients know whether they fit together."""

from pydantic import BaseModel, Field

API_VERSION = 3
"""Raised by a change that clients or pools of before cannot work with, and by no other."""
OLDEST_CLIENT = 3
"""The oldest API version of clients that a pool still serves."""
VERSION_HEADER = "Poolctl-Api"
"""The header in which poolctl, as a client, sends its API version; other programs need none."""


class ApiResponse(BaseModel):
    """The versions of a pool, and of the clients that it serves."""

    program: str = Field(description="The version of the installed poolctl.")
    database_schema: str = Field(description="The newest revision that the program knows.")
    api: int = API_VERSION
    oldest_client: int = OLDEST_CLIENT
