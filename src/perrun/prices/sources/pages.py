"""Providers' own price lists as JSON, or an index such as their llms.txt that links to one: the fields of a price file.

The list is an array of objects, or {"prices": [...]}; currency, provider and date may stand once at the top. Which
providers are asked is data: PERRUN_PRICE_PAGES names a file with lines `name,url`.
"""

import csv
import os
import re
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any, cast
from urllib.parse import urljoin, urlsplit

from perrun.errors import InvalidInput, Unavailable
from perrun.prices.cells import KINDS, Wrong
from perrun.prices.files import Reader
from perrun.prices.quote import Quote
from perrun.prices.sources.base import Source, rows
from perrun.prices.sources.http import Fetcher, as_json

PAGES = "PERRUN_PRICE_PAGES"


def fetch(http: Fetcher) -> Any:
    """The list itself, or the one that an index in Markdown links to. Raises Unavailable."""
    answer = http.get().decode("utf-8", errors="replace")
    if answer.lstrip()[:1] in ("[", "{"):
        return as_json(answer, http.source)
    return http.json(_linked(answer, http))


def _linked(index: str, http: Fetcher) -> str:
    """Address of the price list among the links of an index, on the same host only."""
    found = [urljoin(http.base, link) for link in re.findall(r"\]\(\s*([^)\s]+\.json)\s*\)", index)]
    own = [link for link in found if urlsplit(link).netloc == urlsplit(http.base).netloc]
    priced = [link for link in own if "pric" in urlsplit(link).path.lower()] or own
    if len(priced) != 1:
        raise Unavailable(
            f"{http.source} answers something that is no JSON and links to {len(priced)} price lists",
            hint="name the list itself: its previous prices stay",
        )
    return priced[0]


def parse_as(name: str, data: Any, today: date) -> Iterator[Quote]:
    """Every object with the fields of a price file. Raises Unavailable at the first that is none: a changed list."""
    top = cast("dict[str, Any]", data) if isinstance(data, dict) else {"prices": data}
    shared = {key: value for key, value in top.items() if key in KINDS}
    reader = Reader(tuple(KINDS), name)
    for place, row in enumerate(rows(top, "prices", name), 1):
        said = {"provider": name, "observed_at": today} | shared | row
        unknown = [key for key in row if key not in KINDS]
        if unknown:
            raise Unavailable(f"{name}: price {place} has an unknown field {unknown[0]!r}", expected=", ".join(KINDS))
        try:
            yield reader.quote([said.get(column) for column in KINDS])
        except Wrong as wrong:
            raise Unavailable(f"{name}: price {place}, {wrong.column}: {wrong.what}", expected=wrong.allowed) from None


def listed_source(name: str, url: str) -> Source:
    """The source that asks one address."""
    return Source(
        name,
        f"price page of {name}",
        url,
        fetch,
        lambda data, today: parse_as(name, data, today),
        unit="as its fields say",
        terms="as its fields say",
        billing="as its fields say",
        verified="the fields of a price file (docs/prices.md)",
    )


def listed(path: str | None) -> list[Source]:
    """Sources of a file with a name and an address a line. Raises InvalidInput."""
    if not path:
        return []
    try:
        table = list(csv.reader(Path(path).read_text(encoding="utf-8").splitlines()))
    except OSError:
        raise InvalidInput(f"no file {path}", expected=f"{PAGES} with lines name,url") from None
    wrong = [row for row in table if len(row) != 2 or not row[1].strip().startswith("http")]
    if wrong:
        raise InvalidInput(f"{path} has the line {','.join(wrong[0])!r}", expected="name,url")
    return [listed_source(name.strip(), url.strip()) for name, url in table]


def sources() -> list[Source]:
    return listed(os.environ.get(PAGES))
