"""Lambda: cents per hour of an instance type, and the regions that have it."""

import re
from collections.abc import Iterator
from datetime import date
from typing import Any, cast

from perrun.errors import Unavailable
from perrun.prices.quote import Quote
from perrun.prices.sources.base import Source, count, inner, number, rows, stated, text
from perrun.prices.sources.cards import of_machine
from perrun.prices.sources.http import Fetcher

CENTS = 100.0


def fetch(http: Fetcher) -> Any:
    return http.json("/api/v1/instance-types", headers={"authorization": f"Bearer {http.key}"})


def parse(data: Any, today: date) -> Iterator[Quote]:
    """The description names the card: '8x H100 (80 GB SXM5)'. A type without capacity keeps its price, region any."""
    types = inner({"answer": data}, "answer").get("data")
    if not isinstance(types, dict):
        raise Unavailable("lambda answers without data", hint="its format may have changed")
    types = cast("dict[str, Any]", types)
    for name in types:
        row = inner(types, name)
        kind = inner(row, "instance_type")
        specs, cents = inner(kind, "specs"), number(kind.get("price_cents_per_hour"))
        size = count(specs.get("gpus"))
        card, memory = _card(text(kind.get("gpu_description")) or text(kind.get("description")))
        if cents is None or not stated(card, size):
            continue
        places: Any = row.get("regions_with_capacity_available") or []
        regions = [text(place.get("name")) for place in rows(places, "", "lambda")] or ["any"]
        for region in regions:
            yield Quote(
                provider="lambda",
                gpu=of_machine("lambda", name, size, card, memory),
                n_gpus=size,
                usd_per_hour=cents / CENTS,
                observed_at=today,
                source="lambda",
                instance=name,
                region=region,
                ram_gib=number(specs.get("memory_gib")),
            )


def _card(said: str) -> tuple[str, float | None]:
    """(card, GB) of 'H100 (80 GB SXM5)' or '8x A100 (40 GB)'."""
    match = re.match(r"(?:\d+x\s+)?(.+?)\s*\((\d+)\s*GB\s*(.*?)\)", said)
    if match is None:
        return re.sub(r"^\d+x\s+", "", said), None
    return f"{match[1]} {match[3]}".strip(), float(match[2])


SOURCE = Source(
    "lambda",
    "Lambda Cloud API",
    "https://cloud.lambda.ai",
    fetch,
    parse,
    unit="cents per hour of the instance",
    terms="on-demand",
    billing="one-minute steps from passed health check to terminate; there is no stop; no egress fee",
    verified="Lambda Cloud API documentation, 2026-09",
    keys=("LAMBDA_API_KEY",),
    needs_key=True,
)
