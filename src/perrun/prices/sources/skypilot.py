"""SkyPilot's catalogue: a CSV a cloud, read without SkyPilot.

GCP lists host and GPU in rows of their own, which add up; RunPod's spot price is its on-demand price and says
nothing; zones of one region differ in spot price only.
"""

import csv
import json
import statistics
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date
from typing import Any, cast

from perrun.errors import Unavailable
from perrun.prices.quote import Quote
from perrun.prices.sources.base import Source, count, inner, number, rows, stated
from perrun.prices.sources.cards import machines, of_machine
from perrun.prices.sources.http import Fetcher

# cloud of the catalogue -> provider of the book. Left out: vast (a poor sample of its market), shadeform and
# primeintellect (other clouds once more), seeweb and simplepod (their lists are in euros without a rate).
CLOUDS = {
    "aws": "aws",
    "gcp": "gcp",
    "lambda": "lambda",
    "nebius": "nebius",
    "verda": "verda",
    "hyperstack": "hyperstack",
    "oci": "oci",
    "runpod": "runpod-secure",
    "jarvislabs": "jarvis-labs",
}
NO_SPOT = ("runpod",)
REAL_DISCOUNT = 0.9  # a zone whose spot price is above this share of on-demand has none to give
# GCP: the accelerator rows that belong to a machine family.
GCP_CARDS = {
    "a2-highgpu": "A100",
    "a2-megagpu": "A100",
    "a2-ultragpu": "A100-80GB",
    "a3-highgpu": "H100",
    "a3-megagpu": "H100-MEGA",
    "g2-standard": "L4",
}
SMALLEST_MIB = 1000  # below that the catalogue gives GB


@dataclass(frozen=True, slots=True)
class Line:
    """A machine in one zone."""

    instance: str
    gpu: str
    n_gpus: int
    region: str
    usd: float | None
    spot: float | None
    ram_gib: float | None


def fetch(http: Fetcher) -> Any:
    """{cloud: text}; a cloud that does not come is named and the others go on. Raises Unavailable without any."""
    found: dict[str, str] = {}
    why = ""
    for cloud in CLOUDS:
        try:
            found[cloud] = http.get(f"/{cloud}/vms.csv").decode("utf-8", errors="replace")
        except Unavailable as error:
            http.missing.append(cloud)
            why = error.what
    if not found:
        raise Unavailable(f"skypilot: no cloud came, at last: {why.removeprefix('skypilot: ')}")
    return found


def parse(data: Any, today: date) -> Iterator[Quote]:
    for cloud, text in cast("dict[str, str]", data).items():
        table = list(csv.DictReader(text.splitlines()))
        needed = {"InstanceType", "AcceleratorName", "Price", "Region"}
        if not table or not needed <= set(table[0]):
            raise Unavailable(f"skypilot: {cloud}/vms.csv has no columns {', '.join(sorted(needed))}")
        lines = _gcp(table) if cloud == "gcp" else _plain(table, CLOUDS[cloud])
        yield from _by_region(lines, cloud, today)


def _plain(table: Iterable[dict[str, str]], provider: str) -> Iterator[Line]:
    for row in table:
        n_gpus = count(row["AcceleratorCount"])
        if stated(row["AcceleratorName"], n_gpus):
            card = of_machine(provider, row["InstanceType"], n_gpus, row["AcceleratorName"], _memory_gb(row))
            yield _line(row, card, n_gpus, number(row["Price"]), number(row.get("SpotPrice")))


def _line(row: dict[str, str], gpu: str, n_gpus: int, usd: float | None, spot: float | None) -> Line:
    return Line(row["InstanceType"], gpu, n_gpus, row["Region"], usd, spot, number(row.get("MemoryGiB")))


def _memory_gb(row: dict[str, str]) -> float | None:
    """Memory of one GPU as GpuInfo says it: JSON or a Python literal, in MiB, sometimes in GB, sometimes 0."""
    try:
        info = json.loads((row.get("GpuInfo") or "").replace("'", '"'))
        gpu = rows(info, "Gpus", "skypilot")[0]
    except (ValueError, Unavailable, IndexError):
        return None
    size = number(inner(gpu, "MemoryInfo").get("SizeInMiB"))
    return size if size is None or size < SMALLEST_MIB else size / 1024


def _gcp(table: list[dict[str, str]]) -> Iterator[Line]:
    """A machine is its host row plus the row of its GPUs in the same zone; machines whose cards we do not know drop."""
    zone = "AvailabilityZone"
    cards = {
        (row["AcceleratorName"], count(row["AcceleratorCount"]), row[zone]): row
        for row in table
        if row["AcceleratorName"] and not row["InstanceType"]
    }
    for row in table:
        known = machines().get(("gcp", row["InstanceType"]))
        if known is None:
            continue
        gpu, n_gpus = known
        if row["AcceleratorName"]:
            yield _line(row, gpu, n_gpus, number(row["Price"]), number(row["SpotPrice"]))
            continue
        family = row["InstanceType"].rpartition("-")[0]
        own = cards.get((GCP_CARDS.get(family, ""), n_gpus, row[zone]))
        if own is not None:
            usd, spot = (_sum(row[name], own[name]) for name in ("Price", "SpotPrice"))
            yield _line(row, gpu, n_gpus, usd, spot)


def _sum(host: str, card: str) -> float | None:
    one, other = number(host), number(card)
    return None if one is None or other is None else one + other


def _by_region(lines: Iterable[Line], cloud: str, today: date) -> Iterator[Quote]:
    """One quote a machine, region and term; of the zones of a region the median of those that give a discount."""
    groups: dict[tuple[str, str], list[Line]] = {}
    for line in lines:
        groups.setdefault((line.instance, line.region), []).append(line)
    for (instance, region), zones in groups.items():
        first = zones[0]
        prices = [line.usd for line in zones if line.usd is not None]
        quote = Quote(CLOUDS[cloud], first.gpu, first.n_gpus, 0.0, today, "skypilot", instance=instance, region=region)
        quote = quote._replace(ram_gib=first.ram_gib)
        if prices:
            yield quote._replace(usd_per_hour=statistics.median(prices))
        spots = sorted(line.spot for line in zones if line.spot is not None)
        usual = statistics.median(prices) if prices else float("inf")
        real = [spot for spot in spots if spot < REAL_DISCOUNT * usual] or spots
        if spots and cloud not in NO_SPOT:
            span = f"zones from ${real[0]:g} to ${real[-1]:g}" if len(real) > 1 and real[0] != real[-1] else ""
            yield quote._replace(term="interruptible", usd_per_hour=statistics.median(real), note=span)


SOURCE = Source(
    "skypilot",
    "SkyPilot catalogue v8",
    "https://raw.githubusercontent.com/skypilot-org/skypilot-catalog/master/catalogs/v8",
    fetch,
    parse,
    unit="USD per hour of the instance; GCP: host and GPUs in rows that add up",
    terms="on-demand, interruptible (not RunPod, whose SpotPrice repeats Price)",
    billing="as each cloud bills (providers.csv)",
    verified="files of skypilot-org/skypilot-catalog v8 read 2026-12",
)
