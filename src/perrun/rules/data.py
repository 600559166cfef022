"""Rows of the tables beside this file: figures as the pages print them, each with its source."""

import csv
from functools import cache
from importlib import resources
from typing import Any

Table = list[dict[str, Any]]


@cache
def data(name: str) -> tuple[dict[str, str], ...]:
    """Rows of rules/<name>.csv."""
    text = resources.files("perrun.rules").joinpath(f"{name}.csv").read_text(encoding="utf-8")
    return tuple(csv.DictReader(text.splitlines()))
