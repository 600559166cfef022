"""RunPod: one price a card and cloud (secure, community), in dollars per hour of ONE GPU."""

from collections.abc import Iterator
from datetime import date
from typing import Any

from perrun.prices.names import named
from perrun.prices.quote import Quote
from perrun.prices.sources.base import Source, count, inner, number, rows, text
from perrun.prices.sources.http import Fetcher

CLOUDS = ("secure", "community")
SIZES = (1, 2, 4, 8)


def fetch(http: Fetcher) -> Any:
    return http.json("/v2/catalog/gpus", {"product": "POD"}, {"authorization": f"Bearer {http.key}"})


def parse(data: Any, today: date) -> Iterator[Quote]:
    """GPUs multiply the price of one; the largest machine of a cloud is its maxCount."""
    found = rows(data, "" if isinstance(data, list) else "gpus", "runpod")
    for row in found:
        price, largest = inner(row, "price"), inner(row, "maxCount")
        name = text(row.get("id")) or text(row.get("displayName"))
        for cloud in CLOUDS:
            each = number(price.get(cloud))
            if each is None or not name:
                continue
            most = count(largest.get(cloud)) or 1
            for size in (size for size in SIZES if size <= most):
                yield Quote(
                    provider=f"runpod-{cloud}",
                    gpu=named(name, number(row.get("memory"))),
                    n_gpus=size,
                    usd_per_hour=each * size,
                    observed_at=today,
                    source="runpod",
                    instance=name,
                )


SOURCE = Source(
    "runpod",
    "RunPod REST v2",
    "https://api.runpod.io",
    fetch,
    parse,
    unit="USD per hour of one GPU",
    terms="on-demand (secure and community cloud)",
    billing="per second; one hour of credit to start; a stopped pod pays double for its volume disk",
    verified="docs.runpod.io, List GPU types (REST v2), 2026-08",
    keys=("RUNPOD_API_KEY",),
    needs_key=True,
)
