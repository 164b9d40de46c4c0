"""Read the day of orders that the package ships, and total it."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import ROUND_HALF_EVEN, Decimal
from importlib.resources import files
from itertools import pairwise

_CENT = Decimal("0.01")


@dataclass(frozen=True, slots=True)
class Order:
    """Hold one line of the file: one article, ordered once."""

    order_id: str
    ordered_at: datetime
    customer: str
    country: str
    sku: str
    quantity: int
    unit_price: Decimal
    currency: str
    discount: Decimal
    """A share of the price, 0 to 1."""

    @property
    def amount(self) -> Decimal:
        """Give what is to be paid, in the order's currency, to the cent."""
        return (self.quantity * self.unit_price * (1 - self.discount)).quantize(_CENT, ROUND_HALF_EVEN)


@dataclass(frozen=True, slots=True)
class Totals:
    """Hold what a day comes to; amounts are by currency, since they cannot be added across."""

    orders: int
    units: int
    amounts: dict[str, Decimal]


def read_orders() -> list[Order]:
    """Read the shipped day of orders, oldest first."""
    text = files("tenure.demo").joinpath("orders.csv").read_text(encoding="utf-8")
    return [_order(row) for row in csv.DictReader(text.splitlines())]


def total(orders: Sequence[Order]) -> Totals:
    """Add up orders, units, and what each currency brought in."""
    amounts: dict[str, Decimal] = {}
    for order in orders:
        amounts[order.currency] = amounts.get(order.currency, Decimal(0)) + order.amount
    return Totals(len(orders), sum(order.quantity for order in orders), dict(sorted(amounts.items())))


def in_batches(orders: Sequence[Order], batches: int) -> Iterator[Sequence[Order]]:
    """Cut orders into that many runs of nearly the same length."""
    edges = [len(orders) * n // batches for n in range(batches + 1)]
    return (orders[start:end] for start, end in pairwise(edges))


def _order(row: dict[str, str]) -> Order:
    return Order(
        order_id=row["order_id"],
        ordered_at=datetime.fromisoformat(row["ordered_at"]),
        customer=row["customer"],
        country=row["country"],
        sku=row["sku"],
        quantity=int(row["quantity"]),
        unit_price=Decimal(row["unit_price"]),
        currency=row["currency"],
        discount=Decimal(row["discount"]),
    )
