"""What may go wrong with an offer and what its buyer must know, in words that follow from the bill."""

import math

from perrun.overheads import Array, Interruption
from perrun.physics import billing
from perrun.terms import Estimate, Offer

Bill = dict[str, tuple[Array, Array]]  # name of a line -> quantity and dollars, one value per offer
# Lines that no clock counts, and their units; all others are hours of the machine.
BILLED_APART = {"storage": "GB-month", "stopped disk": "GB-month", "egress": "GB", "ingress": "GB"}
AHEAD = "paid ahead and left over"
_UNPUBLISHED = {
    "billing step": "billing_increment_s",
    "price of the disk": "storage_usd_per_gb_month",
    "price of traffic": "egress_usd_per_gb",
}


def risk(
    offer: Offer,
    estimate: Estimate,
    stops: Interruption,
    index: int,
    bill: Bill,
    *,
    usd: float,
    used_gpus: int | None = None,
    flip: float | None = None,
) -> str:
    """Idle GPUs, interruptions, what must be paid ahead, what is not published. `flip`: break-even hours, if known."""
    found: list[str] = []
    if used_gpus is not None:
        found.append(f"{used_gpus} of {offer.rig.n_gpus} GPUs are used, the node is sold and billed whole")
    if stops.hazard[index] > 0:
        found += _interrupted(offer, stops, index, flip)
    if offer.term == "market-floor":
        found.append("the floor of a market, not an offer: it may be gone")
    if offer.block_gpu_hours or offer.reservation_hours:
        found.append(_ahead(offer, bill, index))
    unpublished = [name for name, field in _UNPUBLISHED.items() if getattr(offer, field) is None]
    if unpublished:
        found.append(f"not published: {', '.join(unpublished)}")
    if offer.deposit_usd:
        found.append(_deposit(offer.deposit_usd, usd))
    if offer.ram_gib is not None and estimate.host_ram_gib > offer.ram_gib:
        found.append(f"host RAM {offer.ram_gib:.0f} GiB, wants {estimate.host_ram_gib:.0f}")
    if offer.note:
        found.append(offer.note)
    return "; ".join(found)


def _interrupted(offer: Offer, stops: Interruption, index: int, flip: float | None) -> list[str]:
    every = 1.0 / stops.hazard[index]
    found = [
        f"interrupted about every {every:,.0f} h, {stops.expected[index]:.2f} times in this run: "
        f"save every {60 * stops.interval_hours[index]:,.0f} min and resume by itself"
    ]
    if flip is not None:
        when = "here" if math.isinf(flip) else f"if interrupted oftener than every {flip:,.2g} h"
        found.append(f"on demand is cheaper {when}")
    if offer.billed_while_stopped:
        found.append(f"billed while stopped: {offer.billed_while_stopped}")
    return found


def _deposit(deposit: float, usd: float) -> str:
    left = f", ${deposit - usd:,.2f} more than this run" if deposit > usd else ""
    return f"needs a balance of ${deposit:,.2f} to start{left}"


def gpu_hours(offer: Offer, bill: Bill, index: int) -> float:
    """GPU-hours that the clock of a bill draws."""
    clock = (name for name in bill if name not in BILLED_APART and name != AHEAD)
    return sum(float(bill[name][0][index]) for name in clock) * offer.rig.n_gpus


def _ahead(offer: Offer, bill: Bill, index: int) -> str:
    left = float(bill[AHEAD][0][index])
    if offer.reservation_hours:
        return f"reserved ahead, {left:.1f} h of it unused"
    bought = billing.blocks_to_buy(gpu_hours(offer, bill, index), offer.block_gpu_hours)
    blocks = " + ".join(f"{count} x {size}" for size, count in bought.items())
    return f"buy {blocks} GPU-hours ahead, {left * offer.rig.n_gpus:.1f} left over"
