"""Fixtures of the tests that run on a cluster."""

from tests.search.conftest import client

__all__ = ["client"]
