"""Fixtures of the tests of `mycc bench`."""

from ..helpers.fixtures import server  # noqa: F401
