"""What must hold before a price is published; what fails is held back and shown, never silently taken or dropped."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from perrun.errors import PerrunError
from perrun.facts import gpus
from perrun.prices import tables
from perrun.prices.names import card_of
from perrun.prices.quote import Quote, identity
from perrun.units import HOURS_PER_MONTH

JUMP = 2.5  # a list price that moved by this factor since the last time is looked at first
JUMP_OF_SPOT = 4.0  # prices that follow a market move more
CENTS = 100.0


@dataclass(frozen=True, slots=True)
class Sifted:
    """Quotes that may be published, quotes held back with the reason, and names of cards that the facts do not hold."""

    good: list[Quote]
    held: list[tuple[Quote, str]] = field(default_factory=list[tuple[Quote, str]])
    unknown: dict[str, int] = field(default_factory=dict[str, int])


@cache
def bounds(gpu: str) -> tuple[float, float]:
    """Lowest and highest believable price of one GPU-hour [USD] by the class of the card. Raises UnknownName.

    The class follows from the dense 16-bit rate: rows of bounds.csv.
    """
    names = [gpus.get(card_of(gpu)[0])] if not gpus.candidates(gpu) else gpus.candidates(gpu)
    rate = max(max(card.bf16_dense_tflops or 0.0, card.fp16_dense_tflops or 0.0) for card in names)
    rows = [row for row in tables.shipped("bounds.csv") if float(row["from_tflops"]) <= rate]
    return float(rows[-1]["low_usd_per_gpu_hour"]), float(rows[-1]["high_usd_per_gpu_hour"])


def incomplete(quote: Quote) -> str:
    """Why a quote cannot be published at all: card and count belong together; '' if both are there."""
    if quote.gpu and quote.n_gpus > 0:
        return ""
    said = f"{quote.n_gpus} GPUs without a card" if not quote.gpu else f"{quote.gpu} without a count"
    return f"{said} at ${quote.usd_per_hour:g}: the fields of a GPU belong together"


def out_of_bounds(quote: Quote) -> str:
    """Why a price cannot be right for its card, with the mix-up of units that would explain it; '' if it can."""
    low, high = bounds(quote.gpu)
    if quote.term == "owned":
        low = 0.0  # a card that is written off costs its power
    each = quote.usd_per_gpu_hour
    if low <= each <= high:
        return ""
    said = f"${each:.4g} per GPU-hour, a {quote.gpu} costs ${low:g} to ${high:g}"
    if each > high and low <= each / CENTS <= high:
        month = low <= each / HOURS_PER_MONTH <= high
        return f"{said}: cents taken for dollars{', or a price per month' if month else ''}?"
    if each > high and low <= each / HOURS_PER_MONTH <= high:
        return f"{said}: a price per month?"
    if quote.n_gpus > 1 and each > high and low <= each / quote.n_gpus <= high:
        return f"{said}: the price of {quote.n_gpus} taken for that of one GPU?"
    if quote.n_gpus > 1 and low <= quote.usd_per_hour <= high:
        return f"{said}: the price of one GPU taken for that of {quote.n_gpus}?"
    return said


def _machine(quote: Quote) -> tuple[Any, ...]:
    return (quote.provider, quote.instance, quote.region, quote.gpu, quote.n_gpus, quote.n_nodes)


def _kind(quote: Quote) -> tuple[Any, ...]:
    return (quote.provider, quote.region, quote.gpu, quote.term)


def sift(quotes: Iterable[Quote], before: Mapping[Any, float]) -> Sifted:
    """Sorts quotes of one source by whether they can be published.

    before: the source's current prices by identity (`Book.prices_of`), from which jumps are measured.
    """
    result = Sifted([])
    known: list[Quote] = []
    for quote in quotes:
        if reason := incomplete(quote):
            result.held.append((quote, reason))
            continue
        try:
            card_of(quote.gpu)
        except PerrunError:
            result.unknown[quote.gpu] = result.unknown.get(quote.gpu, 0) + 1
        else:
            known.append(quote)
    full = {_machine(quote): quote.usd_per_hour for quote in known if quote.term == "on-demand"}
    single = {_kind(quote): quote.usd_per_hour for quote in known if quote.n_gpus == 1}
    for quote in known:
        reason = (
            out_of_bounds(quote)
            or _above_on_demand(quote, full)
            or _not_more_than_one(quote, single)
            or (_jumped(quote, before.get(identity(quote))) if before else None)
        )
        if reason:
            result.held.append((quote, reason))
        else:
            result.good.append(quote)
    return result


def _above_on_demand(quote: Quote, full: Mapping[Any, float]) -> str:
    asked = full.get(_machine(quote))
    if quote.term == "interruptible" and asked is not None and quote.usd_per_hour > asked:
        return f"interruptible at ${quote.usd_per_hour:g} is above on-demand at ${asked:g}"
    return ""


def _not_more_than_one(quote: Quote, single: Mapping[Any, float]) -> str:
    one = single.get(_kind(quote))
    if quote.n_gpus > 1 and one is not None and quote.usd_per_hour <= one:
        return f"{quote.n_gpus} GPUs at ${quote.usd_per_hour:g} cost no more than one at ${one:g}: a price per GPU?"
    return ""


def _jumped(quote: Quote, before: float | None) -> str:
    limit = JUMP if quote.term != "interruptible" else JUMP_OF_SPOT
    if before is None or before / limit <= quote.usd_per_hour <= before * limit:
        return ""
    return f"${before:g} before, ${quote.usd_per_hour:g} now: {quote.usd_per_hour / before:.2g} times"
