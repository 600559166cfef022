"""What a source is: how to fetch, how to parse, and what its figures mean. Fetching is apart from parsing."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import date
from typing import Any, cast

from perrun.errors import Unavailable
from perrun.facts import gpus
from perrun.prices.quote import Quote
from perrun.prices.sources.http import Fetcher


@dataclass(frozen=True, slots=True)
class Source:
    """One place where prices come from.

    keys: environment variables, of which the first one set is sent; `needs_key` says whether it answers without.
    unit: what a figure in its answer is, before it became dollars per hour of the whole machine.
    verified: what the fields were read from, and when.
    """

    name: str
    title: str
    endpoint: str
    fetch: Callable[[Fetcher], Any]
    parse: Callable[[Any, date], Iterable[Quote]]
    unit: str
    terms: str
    billing: str
    verified: str
    keys: tuple[str, ...] = ()
    needs_key: bool = False
    package: str = ""


def rows(data: Any, path: str, source: str) -> list[dict[str, Any]]:
    """The list of objects under a dotted path of an answer. Raises Unavailable when the answer has another shape."""
    found = data
    for step in filter(None, path.split(".")):
        found = cast("dict[str, Any]", found).get(step) if isinstance(found, dict) else None
    if not isinstance(found, list):
        raise Unavailable(f"{source} answers without {path or 'a list'}", hint="its format may have changed")
    return [cast("dict[str, Any]", row) for row in cast("list[Any]", found) if isinstance(row, dict)]


def inner(row: dict[str, Any], name: str) -> dict[str, Any]:
    """An object inside an object, {} when it is missing or something else."""
    value = row.get(name)
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def number(value: Any) -> float | None:
    """A price as a number above 0; None when it is missing, zero (not sold) or no number."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        found = float(value)
    except ValueError:
        return None
    return found if 0 < found < float("inf") else None


def count(value: Any) -> int:
    """A number of GPUs, 0 when it says none."""
    found = number(value)
    return int(found) if found is not None and found == int(found) else 0


def stated(name: str, size: int) -> bool:
    """Whether a row sells GPUs: it gives a count, or names a card. One without the other is held back by the checks."""
    return size > 0 or bool(name and gpus.candidates(name))


def text(value: Any) -> str:
    return value if isinstance(value, str) else ""
