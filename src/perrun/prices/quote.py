"""A quote: one price of one machine as one source saw it on one day."""

from datetime import date
from operator import itemgetter
from typing import Any, NamedTuple, get_args

from perrun.terms import Term

TERMS: tuple[str, ...] = get_args(Term)


class Quote(NamedTuple):
    """Prices are per hour of the whole rig. None and '' mean that the source does not say.

    gpu: canonical id, or the name as published where that names no form factor. price_per_hour is in `currency`,
    usd_per_hour in US dollars. block_gpu_hours and reservation_hours are what can be bought ahead. A tuple, because
    a book holds millions of them.
    """

    provider: str
    gpu: str
    n_gpus: int
    usd_per_hour: float
    observed_at: date
    source: str
    term: str = "on-demand"
    instance: str = ""
    region: str = ""
    n_nodes: int = 1
    currency: str = "USD"
    price_per_hour: float | None = None
    billing_increment_s: float | None = None
    minimum_s: float | None = None
    billed_while_stopped: str = ""
    storage_usd_per_gb_month: float | None = None
    stopped_storage_usd_per_gb_month: float | None = None
    egress_usd_per_gb: float | None = None
    ingress_usd_per_gb: float | None = None
    deposit_usd: float | None = None
    boot_s: float | None = None
    interruption_class: str = ""
    mtbi_hours: float | None = None
    block_gpu_hours: tuple[int, ...] = ()
    reservation_hours: tuple[float, ...] = ()
    ram_gib: float | None = None
    note: str = ""

    @property
    def usd_per_gpu_hour(self) -> float:
        return self.usd_per_hour / self.n_gpus


FIELDS = Quote._fields
PRODUCT = ("provider", "instance", "region", "term", "gpu", "n_gpus", "n_nodes", "block_gpu_hours", "reservation_hours")
IDENTITY = (*PRODUCT, "currency")
_product = itemgetter(*map(FIELDS.index, PRODUCT))  # by place: a book asks this of millions


def product(quote: Quote) -> tuple[Any, ...]:
    """What is bought, whoever reports its price."""
    return _product(quote)


def identity(quote: Quote) -> tuple[Any, ...]:
    """What makes two quotes of one source prices of one offer, as the book's columns hold it."""
    found = _product(quote)
    if quote.block_gpu_hours or quote.reservation_hours:
        lists = (";".join(f"{hours:g}" for hours in value) for value in found[-2:])
        return (*found[:-2], *lists, quote.currency)
    return (*found[:-2], "", "", quote.currency)
