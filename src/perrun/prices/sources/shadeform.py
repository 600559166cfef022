"""Shadeform: many clouds through one API, in cents per hour of an instance, with boot times."""

from collections.abc import Iterator
from datetime import date
from typing import Any

from perrun.prices.quote import Quote
from perrun.prices.sources.base import Source, count, inner, number, rows, stated, text
from perrun.prices.sources.cards import of_machine
from perrun.prices.sources.http import Fetcher

CENTS = 100.0


def fetch(http: Fetcher) -> Any:
    return http.json("/v1/instances/types", headers={"x-api-key": http.key})


def parse(data: Any, today: date) -> Iterator[Quote]:
    """One offer for each region that has it; of the boot times the middle of least and most."""
    for row in rows(data, "instance_types", "shadeform"):
        shape, cents = inner(row, "configuration"), number(row.get("hourly_price"))
        size, name = count(shape.get("num_gpus")), text(shape.get("gpu_type"))
        if cents is None or not stated(name, size):
            continue
        instance = text(row.get("cloud_instance_type")) or text(row.get("shade_instance_type"))
        form = text(shape.get("interconnect"))
        card = of_machine(text(row.get("cloud")), instance, size, name, number(shape.get("vram_per_gpu_in_gb")), form)
        boot = inner(row, "boot_time")
        least, most = number(boot.get("min_boot_in_sec")), number(boot.get("max_boot_in_sec"))
        for place in rows(row, "availability", "shadeform"):
            if place.get("available") is True:
                yield Quote(
                    provider=f"shadeform-{text(row.get('cloud'))}",
                    gpu=card,
                    n_gpus=size,
                    usd_per_hour=cents / CENTS,
                    observed_at=today,
                    source="shadeform",
                    instance=instance,
                    region=text(place.get("region")),
                    boot_s=(least + most) / 2 if least and most else None,
                    ram_gib=number(shape.get("memory_in_gb")),
                )


SOURCE = Source(
    "shadeform",
    "Shadeform instance types",
    "https://api.shadeform.ai",
    fetch,
    parse,
    unit="cents per hour of the instance",
    terms="on-demand, of the cloud below",
    billing="as the cloud below; prepaid wallet",
    verified="docs.shadeform.ai, /instances/types, 2026-10",
    keys=("SHADEFORM_API_KEY",),
    needs_key=True,
)
