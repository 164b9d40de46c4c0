"""The demo's input: the shipped file is what the script makes, and its totals are right."""

from __future__ import annotations

import csv
import runpy
import subprocess
import sys
from collections import Counter
from decimal import Decimal
from importlib.resources import files
from pathlib import Path

from tenure.demo.orders import in_batches, read_orders, total

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "make_orders.py"


def test_the_shipped_orders_are_what_the_script_makes() -> None:
    """Ship real input that anybody can make again."""
    made = runpy.run_path(str(SCRIPT))["orders_csv"]()
    assert files("tenure.demo").joinpath("orders.csv").read_bytes() == made.encode()


def test_the_script_makes_another_day_from_another_seed() -> None:
    """Let the seed alone decide."""
    command = [sys.executable, str(SCRIPT), "-", "--orders", "50", "--seed"]
    once, again, other = (
        subprocess.run([*command, seed], capture_output=True, check=True).stdout for seed in ("1", "1", "2")
    )
    assert once == again != other
    assert once.count(b"\n") == 51


def test_totals_are_those_of_the_file_counted_by_hand() -> None:
    """Add up in decimals, by currency."""
    text = files("tenure.demo").joinpath("orders.csv").read_text()
    rows = list(csv.DictReader(text.splitlines()))
    totals = total(read_orders())
    assert totals.orders == len(rows) == len({row["order_id"] for row in rows}) >= 2_000
    assert totals.units == sum(int(row["quantity"]) for row in rows)
    exact: Counter[str] = Counter()
    for row in rows:
        exact[row["currency"]] += (  # type: ignore[assignment] # a Counter adds up decimals too
            int(row["quantity"]) * Decimal(row["unit_price"]) * (1 - Decimal(row["discount"]))
        )
    assert totals.amounts.keys() == exact.keys() == {"CHF", "EUR", "GBP", "SEK", "USD"}
    # Each order is rounded to the cent by itself.
    assert all(abs(totals.amounts[currency] - exact[currency]) < len(rows) * Decimal("0.005") for currency in exact)


def test_the_day_looks_like_one() -> None:
    """Hold one day in its order, with sane quantities, prices and discounts."""
    orders = read_orders()
    assert [order.ordered_at for order in orders] == sorted(order.ordered_at for order in orders)
    assert len({order.ordered_at.date() for order in orders}) == 1
    assert all(1 <= order.quantity <= 12 and order.unit_price > 0 and 0 <= order.discount < 1 for order in orders)


def test_batches_hold_every_order_once() -> None:
    """Cut without losing or doubling."""
    orders = read_orders()
    for batches in (1, 5, 7):
        cut = list(in_batches(orders, batches))
        assert len(cut) == batches
        assert [order for batch in cut for order in batch] == orders
