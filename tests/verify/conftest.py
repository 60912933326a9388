"""Fixtures of the tests of what verifies packages."""

from ..helpers.fixtures import server  # noqa: F401
