"""The bill of a run as line items: its total is their sum, and nothing else is added.

A bill prices one job on many offers at once, in three cases: as expected, at the cheap end and at the dear end of
what is not known (speed, start-up, interruptions, billing steps nobody published). One offer is a table of one row.
"""

from functools import cache
from typing import Any, cast

import numpy as np

from perrun import overheads
from perrun.errors import InvalidInput
from perrun.overheads import Array, Case, Moves, column, moves, prior
from perrun.physics import billing
from perrun.prices import tables
from perrun.risks import BILLED_APART, Bill, gpu_hours, risk
from perrun.terms import CostLine, Estimate, Job, Model, Offer, Plan, Strategy
from perrun.units import HOURS_PER_DAY, HOURS_PER_MONTH, MILLION, SECONDS_PER_HOUR


def _billed_hours(used: Array, offers: list[Offer], case: Case) -> tuple[Array, Array]:
    """(hours on the bill, hours paid ahead and left over); nan where no reservation is long enough."""
    increment = column(offers, "billing_increment_s", prior("billing_increment_s", case))
    minimum = column(offers, "minimum_s", 0.0)
    billed = billing.billed_seconds(used * SECONDS_PER_HOUR, increment, minimum) / SECONDS_PER_HOUR
    paid = billed.copy()
    for index, offer in enumerate(offers):
        if offer.block_gpu_hours:
            drawn = billed[index] * offer.rig.n_gpus
            paid[index] = billing.prepaid_gpu_hours(drawn, offer.block_gpu_hours) / offer.rig.n_gpus
        elif offer.reservation_hours:
            paid[index] = billing.reserved_hours(billed[index], offer.reservation_hours)
    return billed, paid - billed


def lines(
    hours: Any,
    gb: Moves,
    offers: list[Offer],
    case: Case = "value",
    used_gpus: int | None = None,
    keep_days: float = 0.0,
) -> Bill:
    """Every line of the bill as (quantity, usd), one value per offer; `hours` are hours of training.

    used_gpus: GPUs that the job uses where it does not use all of the node; the rest is billed and said.
    keep_days: days that the disk is kept after the run, its machine stopped.
    """
    rate = column(offers, "usd_per_hour", 0.0)
    size = np.array([offer.rig.n_gpus for offer in offers], dtype=float)
    share = np.ones(len(offers)) if used_gpus is None else np.minimum(used_gpus / size, 1.0)
    work = np.broadcast_to(np.asarray(hours, dtype=float), rate.shape)
    start = overheads.startup_hours(gb, offers, case)
    stops = overheads.interruption(work, gb, offers, case)
    used = work + start + stops.saving_hours + stops.lost_hours
    billed, ahead = _billed_hours(used, offers, case)
    clock = {
        "training": work * share,
        "idle GPUs of the node": work * (1.0 - share),
        "start-up": start,
        "saving checkpoints": stops.saving_hours,
        "lost work and restarts": stops.lost_hours,
        "billing increment and minimum": np.maximum(billed - used, 0.0),
        "paid ahead and left over": ahead,
    }
    bill = {name: (quantity, quantity * rate) for name, quantity in clock.items()}
    queued = stops.expected * prior("queue_s", case) / SECONDS_PER_HOUR
    return bill | _apart(gb, offers, case, used, queued + HOURS_PER_DAY * keep_days)


def _apart(gb: Moves, offers: list[Offer], case: Case, used: Array, stopped: Array) -> Bill:
    """What is billed apart from the clock: the disk while the machine runs and while it is stopped, and traffic."""
    disk = prior("disk_gb", case) + gb.weights + prior("checkpoints_kept", case) * gb.checkpoint
    home = gb.result + prior("checkpoints_carried", case) * gb.checkpoint
    quantities = {
        "storage": ("storage_usd_per_gb_month", disk * used / HOURS_PER_MONTH),
        "stopped disk": ("stopped_storage_usd_per_gb_month", disk * stopped / HOURS_PER_MONTH),
        "egress": ("egress_usd_per_gb", np.full(used.shape, home)),
        "ingress": ("ingress_usd_per_gb", np.full(used.shape, gb.weights + prior("image_gb", case))),
    }
    return {
        name: (quantity, quantity * column(offers, field, _unknown(field, case)))
        for name, (field, quantity) in quantities.items()
    }


@cache
def _unknown(field: str, case: Case) -> float:
    """What an unpublished price counts as: nothing, and the dearest published one at the dear end of the range."""
    if case != "high":
        return 0.0
    return max(float(row[field]) for row in tables.providers().values() if row[field])


def summed(bill: Bill) -> Array:
    """Dollars of each offer: the sum of its lines in their order, so that adding up a printed bill gives it exactly."""
    usd = np.zeros(next(iter(bill.values()))[1].shape)
    for _, amount in bill.values():
        usd = usd + amount
    return usd


def total(items: list[CostLine]) -> float:
    """Dollars of a printed bill."""
    return sum(line.usd for line in items)


def printed(bill: Bill, index: int) -> list[CostLine]:
    """The bill of one offer, without lines that cost nothing."""
    return [
        CostLine.model_construct(
            name=name, quantity=float(quantity[index]), unit=BILLED_APART.get(name, "h"), usd=float(usd[index])
        )
        for name, (quantity, usd) in bill.items()
        if usd[index]
    ]


def cost_lines(
    hours: float,
    job: Job,
    model: Model,
    offer: Offer,
    case: Case = "value",
    used_gpus: int | None = None,
    keep_days: float = 0.0,
) -> list[CostLine]:
    """The bill of `hours` of training bought through an offer; the sum of its lines is the price of the run.

    Raises InvalidInput when the run is longer than what the offer can reserve.
    """
    bill = lines(hours, moves(job, model), [offer], case, used_gpus, keep_days)
    if np.isnan(summed(bill)[0]):
        longest = max(offer.reservation_hours)
        raise InvalidInput(
            f"{hours:.0f} h of training are more than {offer.provider} reserves",
            expected=f"at most {longest:g} h with start-up",
            hint="split the run, or leave reserved offers out (--term)",
        )
    return printed(bill, 0)


def totals(
    hours: Any,
    job: Job,
    model: Model,
    offers: list[Offer],
    case: Case = "value",
    used_gpus: int | None = None,
    keep_days: float = 0.0,
) -> Array:
    """Dollars of many offers at once: the sum of `cost_lines` of each; nan for what cannot be bought."""
    return summed(lines(hours, moves(job, model), offers, case, used_gpus, keep_days))


def priced_all(
    job: Job,
    model: Model,
    offers: list[Offer],
    strategies: list[Strategy],
    estimates: list[Estimate],
    *,
    used_gpus: int | None = None,
    keep_days: float = 0.0,
    on_demand: dict[Any, float] | None = None,
) -> list[Plan]:
    """Estimates bought through offers, item by item: hours by speed, the bill, and the ends of both ranges.

    The range of the bill joins what is not known of the speed, the start-up, the interruptions and the billing.
    An offer that cannot be bought for so long is left out. on_demand: prices by `overheads.machine`, from which
    follows how often an interruptible machine may be interrupted before it costs more.
    """
    if not offers:
        return []
    gb = moves(job, model)
    hours = {
        "value": _hours(job, estimates, "tokens_per_s"),
        "low": _hours(job, estimates, "tokens_per_s_high"),
        "high": _hours(job, estimates, "tokens_per_s_low"),
    }
    bills = {case: lines(took, gb, offers, cast(Case, case), used_gpus, keep_days) for case, took in hours.items()}
    usd = {case: summed(bill) for case, bill in bills.items()}
    stops = overheads.interruption(hours["value"], gb, offers)
    flips = overheads.break_even_mtbi(hours["value"], gb, offers, on_demand or {})
    parts = overheads.startup_parts(gb, offers)
    plans: list[Plan] = []
    for i, offer in enumerate(offers):
        mean = float(usd["value"][i])
        if np.isnan(mean):
            continue
        flip = None if np.isnan(flips[i]) else float(flips[i])
        used = None if used_gpus is None or used_gpus >= offer.rig.n_gpus else used_gpus
        plans.append(
            Plan.model_construct(
                offer=offer,
                strategy=strategies[i],
                estimate=estimates[i],
                hours=float(hours["value"][i]),
                hours_low=float(hours["low"][i]),
                hours_high=float(hours["high"][i]),
                usd=mean,
                usd_low=min(float(usd["low"][i]), mean),
                usd_high=max(float(usd["high"][i]), mean),
                usd_per_million_tokens=mean / (job.tokens / MILLION),
                cost_lines=printed(bills["value"], i),
                used_gpus=used,
                startup_s={name: float(seconds[i]) for name, seconds in parts.items()},
                break_even_mtbi_hours=flip,
                risk=risk(offer, estimates[i], stops, i, bills["value"], usd=mean, used_gpus=used, flip=flip),
            )
        )
    return plans


def _hours(job: Job, estimates: list[Estimate], field: str) -> Array:
    rates = np.array([getattr(found, field) for found in estimates], dtype=float)
    return job.tokens / rates / SECONDS_PER_HOUR


def priced(job: Job, model: Model, offer: Offer, strategy: Strategy, estimate: Estimate) -> Plan:
    """One estimate bought through one offer."""
    return priced_all(job, model, [offer], [strategy], [estimate])[0]


def what_to_buy(hours: float, job: Job, model: Model, offer: Offer) -> dict[int, int]:
    """Prepaid blocks of each size that cover the run, start-up included. Raises InvalidInput where none are sold."""
    if not offer.block_gpu_hours:
        raise InvalidInput(f"{offer.provider} sells no prepaid blocks here", expected="an offer of term prepaid-block")
    bill = lines(hours, moves(job, model), [offer])
    return billing.blocks_to_buy(gpu_hours(offer, bill, 0), offer.block_gpu_hours)


def smallest_node(offers: list[Offer], n_gpus: int) -> list[Offer]:
    """For each provider, card and term the machine with the fewest GPUs that holds `n_gpus`, cheapest of its size.

    Clouds sell whole nodes: where 2 GPUs are wanted and 8 are sold, 8 are billed. Several nodes are taken only where
    all their GPUs are used.
    """
    best: dict[tuple[str, str, str], Offer] = {}
    for offer in sorted(offers, key=lambda o: (o.rig.n_gpus, o.usd_per_hour)):
        if offer.rig.n_gpus == n_gpus or (offer.rig.n_gpus > n_gpus and offer.rig.n_nodes == 1):
            best.setdefault((offer.provider, offer.rig.gpu, offer.term), offer)
    return list(best.values())
