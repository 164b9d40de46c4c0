"""The fenced load: a store that has seen a larger fencing token refuses a smaller one (C4.3, C7.1)."""

from __future__ import annotations

import threading
from decimal import Decimal

import pytest

from tenure import LostJobLeaseError, LostReason
from tenure.demo.effects import FencedOutError, claim, load
from tenure.demo.orders import in_batches, read_orders, total
from tenure.demo.tables import Effect, Tables
from tests.demo.conftest import Connect
from tests.support.waiting import eventually

RUN_KEY = "2026-07-20T03:00:00.000Z"
OLD = Effect(RUN_KEY, attempt=1, fencing_token=7, node="node-1")
NEW = Effect(RUN_KEY, attempt=2, fencing_token=9, node="node-2")
ORDERS = read_orders()[:40]


def nothing() -> None:
    """Have no objection to a commit."""


def loads(tables: Tables) -> list[tuple[int, str]]:
    return [(token, node) for token, node in tables.rows("SELECT fencing_token, node FROM {schema}.totals")]


def order_rows(tables: Tables) -> int:
    return int(tables.rows("SELECT count(*) FROM {schema}.orders")[0][0])


def test_a_load_writes_orders_and_totals_together(tables: Tables) -> None:
    """Load all batches in one transaction, totals to the cent."""
    assert claim(tables, OLD) is False
    totals = load(tables, OLD, in_batches(ORDERS, 5), nothing)
    assert totals == total(ORDERS)
    assert order_rows(tables) == len(ORDERS)
    stored = tables.rows("SELECT orders, units, amounts FROM {schema}.totals")
    assert stored == [(totals.orders, totals.units, {c: str(a) for c, a in totals.amounts.items()})]
    summed = dict(tables.rows("SELECT currency, sum(amount) FROM {schema}.orders GROUP BY currency"))
    assert summed == totals.amounts
    assert isinstance(summed["EUR"], Decimal)


def test_a_former_owner_cannot_claim(tables: Tables) -> None:
    """Refuse the smaller token, and leave the fence where it is (C4.3)."""
    claim(tables, NEW)
    with pytest.raises(FencedOutError, match="stands at 9, token 7 is refused"):
        claim(tables, OLD)
    assert claim(tables, NEW) is False
    assert tables.rows("SELECT fencing_token FROM {schema}.fences") == [(9,)]


def test_a_former_owner_cannot_commit_once_the_new_one_has_claimed(tables: Tables) -> None:
    """Roll the late load back as a whole, though the new owner has loaded nothing yet (C7.1)."""
    claim(tables, OLD)
    claim(tables, NEW)
    with pytest.raises(FencedOutError):
        load(tables, OLD, [ORDERS], nothing)
    assert (order_rows(tables), loads(tables)) == (0, [])
    load(tables, NEW, [ORDERS], nothing)
    with pytest.raises(FencedOutError):
        load(tables, OLD, [ORDERS], nothing)
    assert (order_rows(tables), loads(tables)) == (len(ORDERS), [(9, "node-2")])


def test_a_load_that_was_committed_in_time_is_found_by_the_next_owner(tables: Tables) -> None:
    """Say that nothing is left to do when a node died between its commit and its SUCCESS (C7.1)."""
    claim(tables, OLD)
    load(tables, OLD, [ORDERS], nothing)
    assert claim(tables, NEW) is True


def test_nobody_loads_without_a_claim(tables: Tables) -> None:
    """Refuse a token that the fence has not seen."""
    with pytest.raises(FencedOutError, match="never raised"):
        load(tables, OLD, [ORDERS], nothing)
    assert order_rows(tables) == 0


def test_a_lost_lease_stops_the_commit(tables: Tables) -> None:
    """Write nothing when the lease is seen to be lost just before the commit (C5.6)."""

    def check() -> None:
        raise LostJobLeaseError(LostReason.TAKEN_OVER)

    claim(tables, OLD)
    with pytest.raises(LostJobLeaseError):
        load(tables, OLD, [ORDERS], check)
    assert (order_rows(tables), loads(tables)) == (0, [])


def test_a_claim_waits_for_a_commit_under_way_and_then_finds_it(tables: Tables, connect: Connect) -> None:
    """Serialise a claim behind the old owner's commit: it is never loaded a second time (C7.1)."""
    claim(tables, OLD)
    found: list[bool] = []

    def take_over() -> None:
        with connect() as own:
            found.append(claim(own, NEW))

    with tables.connection.transaction():
        load(tables, OLD, [ORDERS], nothing)
        taking = threading.Thread(target=take_over)
        taking.start()
        with connect() as looking:
            eventually(lambda: looking.rows("SELECT FROM pg_locks WHERE NOT granted"))
        assert found == []
    taking.join()
    assert found == [True]


def test_a_node_frozen_before_its_commit_does_not_hold_up_the_next(tables: Tables, connect: Connect) -> None:
    """Have the server end the transaction of a holder that fell silent with the fence locked.

    Behind a pooler, psycopg meets the server's last words before the pooler's, and only counts them.
    """
    claim(tables, OLD)
    with pytest.raises(Exception, match=r"idle-in-transaction|received 2 results"), tables.connection.transaction():
        load(tables, OLD, [ORDERS], nothing)
        with connect() as own:
            assert claim(own, NEW) is False
    with connect() as own:
        assert (order_rows(own), loads(own)) == (0, [])
