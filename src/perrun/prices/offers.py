"""Quotes as offers to plan with: the card by its canonical id, the provider's billing practice filled in."""

from functools import cache
from typing import Any, cast

from perrun.prices import tables
from perrun.prices.names import card_of
from perrun.prices.quote import Quote
from perrun.terms import Offer, Rig, Term


@cache
def _rig(gpu: str, n_gpus: int, n_nodes: int) -> Rig:
    return Rig.model_construct(
        gpu=gpu,
        n_gpus=n_gpus,
        n_nodes=n_nodes,
        interconnect=None,
        usable_gib=None,
        host_ram_gib=None,  # on the offer, so that machines that differ only in RAM are estimated once
        power_limit_w=None,
    )


@cache
def billing(provider: str) -> dict[str, Any]:
    """What providers.csv knows of a provider, numbers as numbers."""
    row = tables.providers().get(provider, {})
    numbers = (
        "billing_increment_s",
        "minimum_s",
        "storage_usd_per_gb_month",
        "stopped_storage_usd_per_gb_month",
        "egress_usd_per_gb",
        "ingress_usd_per_gb",
        "deposit_usd",
        "deposit_hours",
        "boot_s",
    )
    return {name: float(row[name]) if row.get(name) else None for name in numbers} | {
        "billed_while_stopped": row.get("billed_while_stopped", ""),
        "boot_billed": row.get("boot_billed") != "no",
    }


def _deposit(quote: Quote, known: dict[str, Any]) -> float | None:
    """Smallest balance that starts the machine: a sum, or some hours of its price."""
    hours = known["deposit_hours"]
    return _first(quote.deposit_usd, known["deposit_usd"], hours and hours * quote.usd_per_hour)


def offer_of(quote: Quote) -> Offer:
    """The offer to plan with: card by its canonical id, what the source does not say filled from providers.csv.

    Built without validation, because a plan prices hundreds of them: quotes are checked where they come in.
    """
    gpu, unsaid = card_of(quote.gpu)
    known = billing(quote.provider)
    notes = [note for note in (unsaid, quote.note) if note]
    interruptible = quote.term == "interruptible"
    published = tables.interruption_classes() if interruptible and not quote.interruption_class else {}
    return Offer.model_construct(
        provider=quote.provider,
        instance=quote.instance,
        region=quote.region,
        term=cast(Term, quote.term),
        usd_per_hour=quote.usd_per_hour,
        rig=_rig(gpu, quote.n_gpus, quote.n_nodes),
        billing_increment_s=_first(quote.billing_increment_s, known["billing_increment_s"]),
        minimum_s=_first(quote.minimum_s, known["minimum_s"], 0.0),
        billed_while_stopped=quote.billed_while_stopped or known["billed_while_stopped"],
        storage_usd_per_gb_month=_first(quote.storage_usd_per_gb_month, known["storage_usd_per_gb_month"]),
        stopped_storage_usd_per_gb_month=_first(
            quote.stopped_storage_usd_per_gb_month, known["stopped_storage_usd_per_gb_month"]
        ),
        egress_usd_per_gb=_first(quote.egress_usd_per_gb, known["egress_usd_per_gb"]),
        ingress_usd_per_gb=_first(quote.ingress_usd_per_gb, known["ingress_usd_per_gb"]),
        deposit_usd=_deposit(quote, known),
        boot_s=_first(quote.boot_s, known["boot_s"]),
        boot_billed=known["boot_billed"],
        interruption_class=quote.interruption_class
        or published.get((quote.provider, quote.instance, quote.region))
        or None,
        ram_gib=quote.ram_gib,
        mtbi_hours=quote.mtbi_hours,
        block_gpu_hours=quote.block_gpu_hours,
        reservation_hours=quote.reservation_hours,
        note="; ".join(notes),
        observed_at=quote.observed_at,
        source=quote.source,
    )


def _first(*values: float | None) -> Any:
    return next((value for value in values if value is not None), None)
