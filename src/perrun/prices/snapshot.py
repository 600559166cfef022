"""Offers to plan with: the shipped snapshot, so that the first plan needs no network, and what the book published.

Imports neither a database nor a network library: this is on the start-up path of `perrun plan`.
"""

from collections.abc import Iterable
from datetime import date
from functools import cache
from pathlib import Path

from perrun.prices import files, place, tables
from perrun.prices.offers import offer_of
from perrun.prices.quote import Quote, product
from perrun.terms import Offer


@cache
def shipped() -> tuple[Quote, ...]:
    """Rows of snapshot.csv; a test validates every one."""
    return tuple(files.rows(tables.text("snapshot.csv").splitlines()))


def published() -> list[Quote]:
    """The current offers that the last refresh or import of the book wrote for planners; empty without a book."""
    file = place.published(place.book_url())
    if not file.is_file():
        return []
    with file.open(encoding="utf-8", newline="") as handle:
        return files.rows(handle)


def newest(quotes: Iterable[Quote], as_of: date | None = None) -> list[Quote]:
    """For each product the quote seen last, none after `as_of`; of two of one day the later in order."""
    found: dict[tuple[object, ...], Quote] = {}
    for quote in quotes:
        if as_of is not None and quote.observed_at > as_of:
            continue
        key = product(quote)
        if key not in found or found[key].observed_at <= quote.observed_at:
            found[key] = quote
    return list(found.values())


def offers(as_of: date | None = None) -> list[Offer]:
    """Offers to plan with: the newest price of each product, or what was known on a day, by the book if there is one.

    Only a day of the past opens a database. Raises what `Book` raises when it cannot be reached.
    """
    if as_of is not None and place.has_book():
        from perrun.prices import desk

        with desk.opened() as book:
            return [offer_of(quote) for quote in book.as_of(as_of)]
    return [offer_of(quote) for quote in newest((*shipped(), *published()), as_of)]


def load(path: str | Path) -> list[Offer]:
    """Offers of the user's own price file. Raises InvalidInput: nothing is returned from a file with an error."""
    return [offer_of(quote) for quote in files.load(path)]
