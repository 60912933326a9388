"""Fixtures of the tests of the command line."""

from ..helpers.fixtures import server  # noqa: F401
