"""The command line on a database of the test's own."""

from __future__ import annotations

import pytest

from tests.cli.commands import Tenure


@pytest.fixture
def tenure(database_url: str) -> Tenure:
    """`tenure` on a fresh database with the schema."""
    return Tenure(database_url)
