"""Azure retail prices: a meter for each virtual machine and region, spot and low priority as meters of their own."""

from collections.abc import Iterator
from datetime import date
from typing import Any

from perrun.prices.quote import Quote
from perrun.prices.sources.base import Source, number, rows, text
from perrun.prices.sources.cards import machines
from perrun.prices.sources.http import Fetcher

ASKED = (
    "serviceName eq 'Virtual Machines' and priceType eq 'Consumption' and "
    "(startswith(armSkuName, 'Standard_NC') or startswith(armSkuName, 'Standard_ND') or "
    "startswith(armSkuName, 'Standard_NV'))"
)
MOST_PAGES = 200


def fetch(http: Fetcher) -> Any:
    """All pages; the last one that is read without a next link ends the list."""
    data = http.json("/api/retail/prices", {"$filter": ASKED})
    items = rows(data, "Items", "azure")
    for _ in range(MOST_PAGES):
        following = text(data.get("NextPageLink"))
        if not following:
            return items
        data = http.json(following)
        items += rows(data, "Items", "azure")
    http.missing.append(f"pages after the first {MOST_PAGES}")
    return items


def parse(data: Any, today: date) -> Iterator[Quote]:
    """Linux meters by the hour of machines whose cards are known; Windows and low priority are other products."""
    for row in rows(data, "", "azure"):
        machine, meter = text(row.get("armSkuName")), text(row.get("meterName"))
        known, usd = machines().get(("azure", machine)), number(row.get("retailPrice"))
        if known is None or usd is None or row.get("unitOfMeasure") != "1 Hour" or row.get("currencyCode") != "USD":
            continue
        if "Windows" in text(row.get("productName")) or "Low Priority" in meter or row.get("type") != "Consumption":
            continue
        yield Quote(
            provider="azure",
            gpu=known[0],
            n_gpus=known[1],
            usd_per_hour=usd,
            observed_at=today,
            source="azure",
            term="interruptible" if "Spot" in meter else "on-demand",
            instance=machine,
            region=text(row.get("armRegionName")),
        )


SOURCE = Source(
    "azure",
    "Azure retail prices",
    "https://prices.azure.com",
    fetch,
    parse,
    unit="USD per hour of the virtual machine",
    terms="on-demand, interruptible (meters with Spot)",
    billing="per second while allocated; deallocate, or a stopped machine bills on",
    verified="learn.microsoft.com, Azure Retail Prices overview, 2026-09",
)
