"""Reading the shipped tables of facts: CSV beside this file, one fact a row, each with its source."""

import csv
from functools import cache
from importlib import resources

from perrun.errors import MissingFact


@cache
def read(name: str) -> tuple[dict[str, str], ...]:
    """Rows of `facts/<name>.csv`, empty cells as ''.

    Raises MissingFact when a row names no source: a figure without a source is refused.
    """
    text = resources.files("perrun.facts").joinpath(f"{name}.csv").read_text(encoding="utf-8")
    rows = tuple(csv.DictReader(text.splitlines()))
    for number, row in enumerate(rows, start=2):
        if not row.get("source"):
            raise MissingFact(f"{name}.csv line {number} names no source", expected="a source in every row of facts")
    return rows


def number(text: str) -> float | None:
    """A cell as a number; None when it is empty."""
    return float(text) if text else None
