"""Prime Intellect: configurations of many providers, in dollars per hour of the configuration."""

from collections.abc import Iterator
from datetime import date
from typing import Any

from perrun.prices.quote import Quote
from perrun.prices.sources.base import Source, count, inner, number, rows, stated, text
from perrun.prices.sources.cards import of_machine
from perrun.prices.sources.http import Fetcher

PAGE = 100
MOST_PAGES = 50


def fetch(http: Fetcher) -> Any:
    """All pages, joined."""
    headers = {"authorization": f"Bearer {http.key}"}
    items: list[dict[str, Any]] = []
    for page in range(1, MOST_PAGES + 1):
        data = http.json("/api/v1/availability/gpus", {"page": page, "page_size": PAGE}, headers)
        found = rows(data, "items", "prime")
        items += found
        if len(found) < PAGE:
            return items
    http.missing.append(f"pages after the first {MOST_PAGES}")
    return items


def parse(data: Any, today: date) -> Iterator[Quote]:
    for row in rows(data, "", "prime"):
        price, size = inner(row, "prices"), count(row.get("gpuCount"))
        usd, name = number(price.get("onDemand")), text(row.get("gpuType"))
        if usd is None or not stated(name, size) or (text(price.get("currency")) or "USD") != "USD":
            continue
        cloud, instance, memory = text(row.get("provider")), text(row.get("cloudId")), number(row.get("gpuMemory"))
        yield Quote(
            provider=f"prime-{cloud}" if cloud else "prime",
            gpu=of_machine(cloud, instance, size, name, memory, text(row.get("socket"))),
            n_gpus=size,
            usd_per_hour=usd,
            observed_at=today,
            source="prime",
            term="interruptible" if row.get("isSpot") is True else "on-demand",
            instance=instance,
            region=text(row.get("dataCenter")) or text(row.get("country")) or text(row.get("region")),
            note="disk, CPU and RAM beyond the least cost extra" if price.get("isVariable") is True else "",
        )


SOURCE = Source(
    "prime",
    "Prime Intellect availability",
    "https://api.primeintellect.ai",
    fetch,
    parse,
    unit="USD per hour of the configuration",
    terms="on-demand, interruptible (isSpot), by provider",
    billing="prepaid wallet; disk and memory beyond the least apart",
    verified="docs.primeintellect.ai, availability, 2026-10",
    keys=("PRIME_API_KEY",),
    needs_key=True,
)
