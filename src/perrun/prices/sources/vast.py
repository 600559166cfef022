"""Vast.ai: every offer is a slice of a host with its own prices, for the whole slice, storage and traffic apart."""

from collections.abc import Iterator
from datetime import date
from typing import Any

from perrun.prices.names import named
from perrun.prices.quote import Quote
from perrun.prices.sources.base import Source, count, number, rows, stated, text
from perrun.prices.sources.http import Fetcher
from perrun.units import KIB

RELIABLE = 0.95  # share of the time that a host was reachable; below that an offer is no plan
MOST = 3000


def fetch(http: Fetcher) -> Any:
    """Verified hosts that can be rented now; both prices of an offer stand in one row."""
    asked = {
        "verified": {"eq": True},
        "rentable": {"eq": True},
        "rented": {"eq": False},
        "type": "on-demand",
        "limit": MOST,
        "order": [["dph_total", "asc"]],
    }
    headers = {"authorization": f"Bearer {http.key}"} if http.key else {}
    data = http.post_json("/api/v0/bundles/", asked, headers)
    if len(rows(data, "offers", "vast")) >= MOST:
        http.missing.append(f"offers after the first {MOST}")
    return data


def parse(data: Any, today: date) -> Iterator[Quote]:
    for row in rows(data, "offers", "vast"):
        size, base = count(row.get("num_gpus")), number(row.get("dph_base"))
        name = text(row.get("gpu_name"))
        if base is None or not stated(name, size) or (number(row.get("reliability2")) or 1.0) < RELIABLE:
            continue
        memory = number(row.get("gpu_ram"))
        storage = number(row.get("storage_cost")) or 0.0
        quote = Quote(
            provider="vast-ai",
            gpu=named(name, memory / KIB if memory else None),
            n_gpus=size,
            usd_per_hour=base,
            observed_at=today,
            source="vast",
            instance=str(row.get("id", "")),
            region=text(row.get("geolocation")),
            storage_usd_per_gb_month=storage,
            stopped_storage_usd_per_gb_month=storage,  # the disk bills in every state
            egress_usd_per_gb=number(row.get("inet_up_cost")) or 0.0,
            ingress_usd_per_gb=number(row.get("inet_down_cost")) or 0.0,
            ram_gib=_ram(row),
            note="a single host: it may be gone",
        )
        yield quote
        bid = number(row.get("min_bid"))
        if bid is not None:
            yield quote._replace(term="interruptible", usd_per_hour=bid, note="stopped when outbid, without notice")


def _ram(row: dict[str, Any]) -> float | None:
    """A slice gets RAM by its share of the cores [GiB]."""
    ram, cores, own = number(row.get("cpu_ram")), number(row.get("cpu_cores")), number(row.get("cpu_cores_effective"))
    return round(ram * own / cores / KIB, 1) if ram and cores and own else None


SOURCE = Source(
    "vast",
    "Vast.ai search",
    "https://console.vast.ai",
    fetch,
    parse,
    unit="USD per hour of the offer (all its GPUs), without disk",
    terms="on-demand, interruptible (lowest bid)",
    billing="per second; the disk bills in every state until it is deleted; traffic both ways by the GB",
    verified="docs.vast.ai, search offers, 2026-09",
    keys=("VAST_API_KEY",),
)
