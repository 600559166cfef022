"""gpuhunt's published catalogues, through its own code (extra `prices`): nine clouds, a zip each.

It merges form factors (A100, H100 for SXM and PCIe alike), which the machine's own name undoes; where that names
none the card stays without form factor. Its RunPod rows say the cloud by the place: a data centre, or a country.
"""

import logging
import os
from collections.abc import Iterator
from datetime import date
from typing import TYPE_CHECKING, Any, cast

from perrun.errors import Unavailable
from perrun.prices.quote import Quote
from perrun.prices.sources.base import Source
from perrun.prices.sources.cards import of_machine
from perrun.prices.sources.http import Fetcher

if TYPE_CHECKING:
    from gpuhunt import CatalogItem

BUCKET = "https://dstack-gpu-pricing.s3.eu-west-1.amazonaws.com/v3"
ADDRESS = "GPUHUNT_CATALOG_URL"
# its name -> provider of the book
PROVIDERS = {
    "aws": "aws",
    "azure": "azure",
    "gcp": "gcp",
    "lambdalabs": "lambda",
    "nebius": "nebius",
    "oci": "oci",
    "runpod": "runpod",
    "verda": "verda",
    "cloudrift": "cloudrift",
}


def fetch(http: Fetcher) -> "list[CatalogItem]":
    """Items of all catalogues that load; those that do not are named. Raises Unavailable without any, or the extra."""
    try:
        from gpuhunt import Catalog
    except ImportError:
        raise Unavailable("gpuhunt is not installed", hint="pip install 'perrun[prices]'") from None
    logging.getLogger("gpuhunt").setLevel(logging.CRITICAL)  # it prints a traceback for each cloud that fails
    if http.base != BUCKET:
        os.environ[ADDRESS] = http.base
    catalog = Catalog(auto_reload=False)
    try:
        catalog.load()
    except Exception as error:
        raise Unavailable(f"gpuhunt: {error}", hint="its previous prices stay; try again later") from None
    loaded = [name for name in PROVIDERS if name in catalog.catalog]
    http.missing += [name for name in PROVIDERS if name not in loaded]
    return catalog.query(provider=loaded, min_gpu_count=1) if loaded else []


def parse(data: Any, today: date) -> Iterator[Quote]:
    for item in cast("list[CatalogItem]", data):
        if item.price <= 0:
            continue
        provider = _provider(item)
        size, memory = item.gpu_count, item.gpu_memory
        yield Quote(
            provider=provider,
            gpu=of_machine(provider, item.instance_name, size, item.gpu_name or "", memory),
            n_gpus=size,
            usd_per_hour=item.price,
            observed_at=today,
            source="gpuhunt",
            term="interruptible" if item.spot else "on-demand",
            instance=item.instance_name,
            region=item.location,
            ram_gib=item.memory or None,
        )


def _provider(item: "CatalogItem") -> str:
    name = PROVIDERS.get(item.provider, item.provider)
    if name != "runpod":
        return name
    return "runpod-community" if len(item.location) == 2 else "runpod-secure"


SOURCE = Source(
    "gpuhunt",
    "gpuhunt catalogues v3",
    BUCKET,
    fetch,
    parse,
    unit="USD per hour of the instance",
    terms="on-demand, interruptible (not RunPod, Lambda)",
    billing="as each cloud bills (providers.csv)",
    verified="gpuhunt 0.1.34, its own code, 2026-12",
    package="gpuhunt",
)
