"""Our pools keep their tries to themselves; those of the application say what they always said (C11)."""

from __future__ import annotations

import logging

import pytest
from psycopg_pool import ConnectionPool

from tenure.drivers.pool_log import POOL_NAME, OwnConnection
from tests.support.waiting import eventually

NOWHERE = "host=127.0.0.1 port=1 connect_timeout=2"


@pytest.mark.parametrize(("name", "logger"), [("app", "psycopg.pool"), (POOL_NAME, "tenure")])
def test_a_pool_that_cannot_connect(name: str, logger: str, caplog: pytest.LogCaptureFixture) -> None:
    """C11: one logger hears of each try; for our pool that is ours, at level debug."""
    caplog.set_level(logging.DEBUG, "tenure")
    with ConnectionPool(NOWHERE, min_size=1, open=True, name=name):
        told = eventually(lambda: [record for record in caplog.records if "error connecting" in record.getMessage()])
    assert {record.name for record in told} == {logger}
    assert {record.levelno for record in told} == {logging.DEBUG if name == POOL_NAME else logging.WARNING}


def test_a_connection_of_ours_that_is_discarded(caplog: pytest.LogCaptureFixture) -> None:
    """C11: told by the connection, for such a line names no pool."""
    logger = logging.getLogger("psycopg.pool")
    logger.warning("discarding closed connection: %s", OwnConnection())
    assert not caplog.records
    logger.warning("discarding closed connection: %s", object())
    logger.warning("connections: %(count)s", {"count": 3})
    assert len(caplog.records) == 2
