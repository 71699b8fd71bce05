"""The folder in memory of the secure sum's tests."""

from tests.site_agent.secure.conftest import folder

__all__ = ["folder"]
