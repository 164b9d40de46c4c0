"""Make the day of orders that `tenure demo` loads: the same file from the same seed, on every Python.

    python scripts/make_orders.py            writes src/tenure/demo/orders.csv
    python scripts/make_orders.py - --seed 8 writes another day to standard output

The shop is invented. Traffic has a hump at noon and one in the evening, few customers order often, prices are those of
the customer's country, and one order in six bears a discount.
"""

from __future__ import annotations

import argparse
import csv
import io
import math
import random
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

TARGET = Path(__file__).resolve().parent.parent / "src" / "tenure" / "demo" / "orders.csv"
DAY = datetime(2026, 7, 19, tzinfo=UTC)
SEED = 20260719
ORDERS = 2_400
CUSTOMERS = 900
HEADER = (
    "order_id",
    "ordered_at",
    "customer",
    "country",
    "sku",
    "quantity",
    "unit_price",
    "currency",
    "discount",
)
# Country, its share of the orders, currency, and what a euro costs there.
COUNTRIES = (
    ("DE", 0.28, "EUR", 1.00),
    ("FR", 0.17, "EUR", 1.00),
    ("NL", 0.09, "EUR", 1.00),
    ("AT", 0.07, "EUR", 1.00),
    ("GB", 0.16, "GBP", 0.86),
    ("CH", 0.08, "CHF", 0.95),
    ("SE", 0.07, "SEK", 11.20),
    ("US", 0.08, "USD", 1.09),
)
# Kind, how many articles of it, and the euro price of the cheapest and the dearest.
KINDS = (
    ("TEA", 14, 4, 18),
    ("CUP", 12, 9, 36),
    ("POT", 8, 24, 89),
    ("TIN", 10, 6, 22),
    ("TRAY", 6, 18, 65),
    ("GIFT", 4, 39, 129),
)
QUANTITIES = ((1, 0.62), (2, 0.22), (3, 0.09), (4, 0.04), (6, 0.02), (12, 0.01))
DISCOUNTS = ((0, 0.83), (5, 0.06), (10, 0.08), (20, 0.03))
HOURS = tuple(
    (hour, 0.15 + math.exp(-((hour - 12) ** 2) / 9) + 1.4 * math.exp(-((hour - 20) ** 2) / 6)) for hour in range(24)
)


def one_of(rng: random.Random, weighted: Sequence[tuple[T, float]]) -> T:
    """Draw by weight with `random()` alone, whose sequence is promised to stay the same."""
    left = rng.random() * sum(weight for _, weight in weighted)
    for value, weight in weighted:
        left -= weight
        if left < 0:
            return value
    return weighted[-1][0]


def below(rng: random.Random, limit: int) -> int:
    """Draw a whole number of 0 to `limit - 1`."""
    return int(rng.random() * limit)


def catalogue(rng: random.Random) -> list[tuple[str, float]]:
    """Give each article and its price in euros."""
    return [
        (f"{kind}-{number:03d}", low + rng.random() * (high - low))
        for kind, count, low, high in KINDS
        for number in range(1, count + 1)
    ]


def local_price(euros: float, rate: float) -> str:
    """Give the price as a shop writes it: whole crowns, and 95 cents elsewhere."""
    return f"{round(euros * rate)}.00" if rate > 2 else f"{int(euros * rate)}.95"


def instants(rng: random.Random, count: int) -> list[datetime]:
    """Give when the orders came, in their order, to the second."""
    drawn = [one_of(rng, HOURS) * 3600 + below(rng, 3600) for _ in range(count)]
    return [DAY + timedelta(seconds=second) for second in sorted(drawn)]


def rows(seed: int, count: int) -> Iterator[tuple[object, ...]]:
    """Give the orders of the day."""
    rng = random.Random(seed)
    articles = catalogue(rng)
    homes = [one_of(rng, [(country, country[1]) for country in COUNTRIES]) for _ in range(CUSTOMERS)]
    for number, instant in enumerate(instants(rng, count), start=1):
        customer = int(CUSTOMERS * rng.random() ** 2)
        country, _, currency, rate = homes[customer]
        sku, euros = articles[below(rng, len(articles))]
        yield (
            f"{DAY:%Y%m%d}-{number:05d}",
            f"{instant:%Y-%m-%dT%H:%M:%SZ}",
            f"C{customer + 1:04d}",
            country,
            sku,
            one_of(rng, QUANTITIES),
            local_price(euros, rate),
            currency,
            f"0.{one_of(rng, DISCOUNTS):02d}",
        )


def orders_csv(seed: int = SEED, count: int = ORDERS) -> str:
    """Give the file as text."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEADER)
    writer.writerows(rows(seed, count))
    return text.getvalue()


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description="Make the day of orders that `tenure demo` loads.")
    parser.add_argument("target", nargs="?", default=str(TARGET), help="where to write; - is standard output")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--orders", type=int, default=ORDERS)
    given = parser.parse_args()
    text = orders_csv(given.seed, given.orders)
    if given.target == "-":
        sys.stdout.write(text)
    else:
        Path(given.target).write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
