"""Load the orders under a fence: a store that refuses smaller fencing tokens than the largest it has seen.

A lease alone cannot stop a process that was frozen just before its commit. The store can, since it sees every writer:

1. *claim*: raise the tick's fence to our token, or be refused; from here on no former owner can commit;
2. *look*: if an earlier attempt has committed its load, there is nothing to do;
3. *load* in one transaction, and commit only if the fence still bears our token, with its row locked until then.

So each tick is loaded once, however leases and processes fail (C7.1).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from tenure.demo.orders import Order, Totals, total
from tenure.demo.plan import LEASE_MS
from tenure.demo.tables import Effect, Tables

_CLAIM: Final = """
INSERT INTO {schema}.fences AS fence (run_key, fencing_token) VALUES (%s, %s)
ON CONFLICT (run_key) DO UPDATE SET fencing_token = excluded.fencing_token
  -- a former owner changes nothing
  WHERE fence.fencing_token <= excluded.fencing_token
RETURNING fencing_token
"""
_COPY: Final = """
COPY {schema}.orders (run_key, attempt, fencing_token, order_id, ordered_at, customer, country, sku, quantity,
  unit_price, currency, discount, amount) FROM STDIN
"""
_TOTALS: Final = """
INSERT INTO {schema}.totals (run_key, attempt, fencing_token, node, orders, units, amounts)
VALUES (%s, %s, %s, %s, %s, %s, CAST(%s AS jsonb))
"""


class FencedOutError(Exception):
    """Refuse a write whose fencing token is smaller than one that was seen; its transaction is rolled back."""

    def __init__(self, effect: Effect, seen: int | None) -> None:
        stands = f"stands at {seen}" if seen is not None else "was never raised"
        super().__init__(f"the fence {stands}, token {effect.fencing_token} is refused")


def claim(tables: Tables, effect: Effect) -> bool:
    """Raise the fence to our token, and say whether an earlier attempt has loaded the tick already.

    Raises `FencedOutError` if a larger token was seen; nothing is changed then.
    """
    # A transaction, for its READ COMMITTED: under a stricter default of the database, waiting would end in a 40001.
    with tables.connection.transaction():
        if not tables.rows(_CLAIM, effect.run_key, effect.fencing_token):
            raise FencedOutError(effect, _fence(tables, effect))
    return bool(tables.rows("SELECT FROM {schema}.totals WHERE run_key = %s", effect.run_key))


def load(
    tables: Tables, effect: Effect, batches: Iterable[Sequence[Order]], before_commit: Callable[[], None]
) -> Totals:
    """Write the orders and their totals in one transaction; all of it or nothing.

    `before_commit` may raise to stop it, and so may `batches`. Raises `FencedOutError` if the fence does not bear our
    token when all is written.
    """
    loaded: list[Order] = []
    with tables.connection.transaction():
        for batch in batches:
            _write(tables, effect, batch)
            loaded += batch
        before_commit()
        totals = total(loaded)
        _write_totals(tables, effect, totals)
        _hold_fence(tables, effect)
    return totals


def _write(tables: Tables, effect: Effect, batch: Sequence[Order]) -> None:
    about = effect.run_key, effect.attempt, effect.fencing_token
    with tables.connection.cursor() as cursor, cursor.copy(tables.composed(_COPY)) as copy:
        for order in batch:
            what = order.order_id, order.ordered_at, order.customer, order.country, order.sku, order.quantity
            copy.write_row((*about, *what, order.unit_price, order.currency, order.discount, order.amount))


def _write_totals(tables: Tables, effect: Effect, totals: Totals) -> None:
    amounts = json.dumps({currency: str(amount) for currency, amount in totals.amounts.items()})
    about = effect.run_key, effect.attempt, effect.fencing_token, effect.node
    tables.connection.execute(tables.composed(_TOTALS), [*about, totals.orders, totals.units, amounts])


def _hold_fence(tables: Tables, effect: Effect) -> None:
    # Frozen between this lock and the commit, we would keep the next owner waiting at its claim: the server ends such
    # a transaction after a lease.
    tables.connection.execute(f"SET LOCAL idle_in_transaction_session_timeout = {LEASE_MS:d}".encode())
    seen = _fence(tables, effect)
    if seen != effect.fencing_token:
        raise FencedOutError(effect, seen)


def _fence(tables: Tables, effect: Effect) -> int | None:
    rows = tables.rows("SELECT fencing_token FROM {schema}.fences WHERE run_key = %s FOR UPDATE", effect.run_key)
    return rows[0][0] if rows else None
