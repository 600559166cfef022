"""What a source is: how to fetch, how to parse, and what its figures mean. Fetching is apart from parsing."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import date
from functools import cache
from typing import Any

from perrun.errors import Unavailable
from perrun.prices import tables
from perrun.prices.quote import Quote
from perrun.prices.sources.http import Fetcher


@dataclass(frozen=True, slots=True)
class Source:
    """One place where prices come from.

    keys: environment variables, of which the first one set is sent; `needs_key` says whether it answers without.
    unit: what a figure in its answer is, before we made it dollars per hour of the whole machine.
    """

    name: str
    title: str
    endpoint: str
    fetch: Callable[[Fetcher], Any]
    parse: Callable[[Any, date], Iterable[Quote]]
    unit: str
    terms: str
    keys: tuple[str, ...] = ()
    needs_key: bool = False
    module: str = ""


def rows(data: Any, path: str, source: str) -> list[dict[str, Any]]:
    """The list of objects under a dotted path of an answer. Raises Unavailable when the answer has another shape."""
    found = data
    for step in filter(None, path.split(".")):
        found = found.get(step) if isinstance(found, dict) else None  # type: ignore[reportUnknownMemberType]
    if not isinstance(found, list):
        raise Unavailable(f"{source} answers without {path or 'a list'}", hint="its format may have changed")
    return [row for row in found if isinstance(row, dict)]  # type: ignore[reportUnknownVariableType]


def number(value: Any) -> float | None:
    """A price as a number above 0; None when it is missing, zero (not sold) or no number."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        found = float(value)
    except ValueError:
        return None
    return found if 0 < found < float("inf") else None


@cache
def machines() -> dict[tuple[str, str], tuple[str, int]]:
    """(provider, instance) -> (card, count) of machines whose names say no card: rows of the shipped snapshot."""
    known = tables.shipped("snapshot.csv")
    return {(row["provider"], row["instance"]): (row["gpu"], int(row["n_gpus"])) for row in known}
