"""Fixtures of the tests of quantised models."""

from ..helpers.fixtures import server  # noqa: F401
