"""The price book at ten million offers: import rate, latest, market and as_of, on SQLite or PostgreSQL.

    python bench/prices.py [--offers 20000] [--days 500] [--first DAY] [--url sqlite:///FILE | postgresql://...]

The history comes in imports of twenty days each, as a back-fill does, then twenty imports of one day, as lists do.
With --first the book at --url is filled up to that day already, so that a part can be measured again in seconds.
Each query is asked cold once (a fresh connection) and then five times; the median is printed.
"""

import argparse
import gc
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from perrun.prices import files, market
from perrun.prices.book import Book
from perrun.prices.quote import Quote
from perrun.surfaces.cli import GARBAGE

CARDS = ("H100-SXM-80GB", "A100-SXM4-80GB", "A100-PCIe-80GB", "L40S-48GB", "H200-SXM-141GB", "RTX-4090-24GB", "L4-24GB")
START = date(2025, 1, 1)
DAILY = 20  # days of daily imports at the end, and days of one import of the back-fill


def products(count: int) -> list[Quote]:
    """Distinct offers: providers x cards x sizes x terms x regions."""
    made: list[Quote] = []
    for number in range(count):
        card = CARDS[number % len(CARDS)]
        size = (1, 2, 4, 8)[number // len(CARDS) % 4]
        term = ("on-demand", "interruptible")[number // 28 % 2]
        provider, region = f"provider-{number // 56 % 40:02d}", f"region-{number // 2240:03d}"
        usd = size * (0.5 + number % 97 / 40)
        made.append(
            Quote(provider, card, size, usd, START, "bench", term, instance=f"{size}x-{card}-{number}", region=region)
        )
    return made


def day_of(offers: list[Quote], day: int) -> Iterator[Quote]:
    """The same offers on a later day, a tenth of them at another price."""
    observed = START + timedelta(days=day)
    for number, quote in enumerate(offers):
        moved = 1.0 + 0.01 * day if (number + day) % 10 == 0 else 1.0
        yield quote._replace(observed_at=observed, usd_per_hour=quote.usd_per_hour * moved)


def timed(ask: Callable[[], object]) -> tuple[float, float]:
    """(first, median of five) milliseconds of a query."""
    took: list[float] = []
    for _ in range(6):
        start = time.perf_counter()
        ask()
        took.append((time.perf_counter() - start) * 1000)
    return took[0], statistics.median(took[1:])


def fill(book: Book, offers: list[Quote], days: range, at_once: int) -> float:
    """Offers a second over imports of `at_once` days each."""
    spent = 0.0
    for first in range(days.start, days.stop, at_once):
        quotes = [quote for day in range(first, first + at_once) for quote in day_of(offers, day)]
        start = time.perf_counter()
        book.add("bench", quotes, now=datetime(2025, 1, 1, tzinfo=UTC) + timedelta(days=first))
        spent += time.perf_counter() - start
    return len(offers) * len(days) / spent


def csv_rate(offers: list[Quote], folder: Path) -> float:
    """Offers a second from a CSV file, every cell checked."""
    file = folder / "offers.csv"
    file.write_text(files.as_csv(offers), encoding="utf-8")
    start = time.perf_counter()
    files.load(file)
    return len(offers) / (time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--offers", type=int, default=20_000)
    parser.add_argument("--days", type=int, default=500)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--url", default="")
    given = parser.parse_args()
    gc.set_threshold(GARBAGE)  # as the command line runs
    with tempfile.TemporaryDirectory() as folder:
        url = given.url or f"sqlite:///{folder}/prices.db"
        offers = products(given.offers)
        with Book(url) as book:
            print(f"{given.offers * given.days:,} observations of {given.offers:,} offers")
            filled = fill(book, offers, range(given.first, given.days - DAILY), DAILY)
            daily = fill(book, offers, range(given.days - DAILY, given.days), 1)
            print(f"import: {filled:,.0f} offers/s back-fill, {daily:,.0f} a day's list at the full size")
            print(f"a CSV file is read and checked at {csv_rate(offers, Path(folder)):,.0f} offers/s")
        middle = START + timedelta(days=given.days // 2)
        queries: dict[str, Callable[[Book], object]] = {
            "latest of one card": lambda book: book.latest(gpu=["H100-SXM-80GB"], term=["on-demand"]),
            "latest of all": lambda book: book.latest(),
            "market of one card": lambda book: market.markets(book.columns(gpu=["H100-SXM-80GB"])),
            "market of all": lambda book: market.markets(book.columns()),
            "as_of of one card": lambda book: book.as_of(middle, gpu=["H100-SXM-80GB"], term=["on-demand"]),
            "as_of of all": lambda book: book.as_of(middle),
            "history of one offer": lambda book: book.history(instance=[offers[0].instance]),
        }
        for name, ask in queries.items():
            with Book(url) as book:
                first, median = timed(lambda ask=ask, book=book: ask(book))
            print(f"{name:<22} {first:8.1f} ms cold {median:8.1f} ms")


if __name__ == "__main__":
    main()
