"""The bill of a run as line items: its total is their sum, and nothing else is added.

`Bills` prices one job on many offers at once, in three cases: as expected, at the cheap end and at the dear end of
what is not known (speed, start-up, interruptions, billing steps nobody published). One offer is a table of one row.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt

from perrun.errors import InvalidInput
from perrun.physics import billing, params, spot
from perrun.prices import tables
from perrun.shapes import Shape
from perrun.terms import CostLine, Estimate, Job, Model, Offer, Plan, Strategy
from perrun.units import GB, HOURS_PER_MONTH, MILLION, SECONDS_PER_HOUR

Case = Literal["low", "value", "high"]  # the cheap end, as expected, the dear end: fields of tables.Prior
Array = npt.NDArray[np.float64]
Bill = dict[str, tuple[Array, Array]]  # name of a line -> quantity and dollars, one value per offer
STOPS = ("interruptible",)
UNITS = {"storage": "GB-month", "egress": "GB"}
# Training in 16 bits under adapters keeps them in fp32 with two moments; full training saves 16-bit weights with
# two fp32 moments. Source: transformers Trainer, which saves model and optimizer state dicts.
BYTES_PER_ADAPTER = 12.0
BYTES_PER_PARAMETER = 10.0
STORED_BYTES = {"gptq": 0.56, "awq": 0.56, "mxfp4": 0.53, "nvfp4": 0.56, "fp8": 1.0}


@dataclass(frozen=True, slots=True)
class Moves:
    """GB that a run moves: weights in, one checkpoint, what is carried home at the end."""

    weights: float
    checkpoint: float
    result: float


@cache
def _adapter_params(shape: Shape, targets: str, rank: int) -> float:
    return params.adapters_total(shape, targets, rank)


def moves(job: Job, model: Model) -> Moves:
    """GB that the run downloads, saves at a checkpoint, and carries home (adapters, or the whole 16-bit model)."""
    weights = STORED_BYTES.get(model.stored_quantization or "", 2.0) * model.total_params / GB
    if job.adapters:
        count = _adapter_params(model.shape, job.lora_targets, job.lora_rank)
        return Moves(weights, BYTES_PER_ADAPTER * count / GB, 4.0 * count / GB)
    return Moves(weights, BYTES_PER_PARAMETER * model.total_params / GB, 2.0 * model.total_params / GB)


def _prior(name: str, case: Case) -> float:
    return float(getattr(tables.priors()[name], case))


def _column(offers: list[Offer], field: str, unknown: float) -> Array:
    return np.array([unknown if (value := getattr(offer, field)) is None else value for offer in offers], dtype=float)


def startup_hours(gb: Moves, offers: list[Offer], case: Case = "value") -> Array:
    """Hours that are billed before the first step: boot, image, installation, download and load of the weights."""
    boot = _column(offers, "boot_s", _prior("boot_s", case))
    download = (_prior("image_gb", case) + gb.weights) / _prior("network_gb_s", case)
    load = gb.weights / _prior("load_gb_s", case)
    return (boot + download + load + _prior("install_s", case)) / SECONDS_PER_HOUR


def hazards(offers: list[Offer], case: Case = "value") -> Array:
    """Interruptions per hour of each offer; 0 where nobody interrupts. The user's own figure goes first.

    Any node of several stops the run, so the hazard grows with the nodes.
    """
    found = np.zeros(len(offers))
    for index, offer in enumerate(offers):
        if offer.term in STOPS:
            mean = offer.mtbi_hours or getattr(tables.mtbi_hours(offer.interruption_class), case)
            found[index] = offer.rig.n_nodes / mean
    return found


@dataclass(frozen=True, slots=True)
class Interruption:
    """What being interruptible adds to `work` hours, one value per offer."""

    hazard: Array
    interval_hours: Array
    saving_hours: Array
    lost_hours: Array
    expected: Array


def interruption(work: Any, gb: Moves, offers: list[Offer], case: Case = "value") -> Interruption:
    """Expected hours of saving, and of lost work and restarts, saving at Daly's best interval."""
    hazard = hazards(offers, case)
    checkpoint = gb.checkpoint / _prior("checkpoint_gb_s", case) / SECONDS_PER_HOUR
    restart = _prior("restart_s", case) / SECONDS_PER_HOUR + startup_hours(gb, offers, case)
    work = np.broadcast_to(np.asarray(work, dtype=float), hazard.shape)
    best: Array = spot.daly_interval(checkpoint, hazard)
    interval = np.where(hazard > 0, np.minimum(best, work), work)
    saving = np.where(hazard > 0, spot.segments(work, interval) * checkpoint, 0.0)
    total = spot.expected_hours(work, hazard, interval, np.where(hazard > 0, checkpoint, 0.0), restart)
    return Interruption(hazard, interval, saving, np.maximum(total - work - saving, 0.0), hazard * total)


def _billed_hours(used: Array, offers: list[Offer], case: Case) -> tuple[Array, Array]:
    """(hours on the bill, hours paid ahead and left over); nan where no reservation is long enough."""
    increment = _column(offers, "billing_increment_s", _prior("billing_increment_s", case))
    minimum = _column(offers, "minimum_s", 0.0)
    billed = billing.billed_seconds(used * SECONDS_PER_HOUR, increment, minimum) / SECONDS_PER_HOUR
    paid = billed.copy()
    for index, offer in enumerate(offers):
        if offer.block_gpu_hours:
            drawn = billed[index] * offer.rig.n_gpus
            paid[index] = billing.prepaid_gpu_hours(drawn, offer.block_gpu_hours) / offer.rig.n_gpus
        elif offer.reservation_hours:
            paid[index] = billing.reserved_hours(billed[index], offer.reservation_hours)
    return billed, paid - billed


def lines(hours: Any, gb: Moves, offers: list[Offer], case: Case = "value", used_gpus: Any = None) -> Bill:
    """Every line of the bill as (quantity, usd), one value per offer; `hours` are hours of training.

    used_gpus: GPUs that the job uses where it does not use all of the node; the rest is billed and said.
    """
    rate = _column(offers, "usd_per_hour", 0.0)
    size = np.array([offer.rig.n_gpus for offer in offers], dtype=float)
    share = np.ones(len(offers)) if used_gpus is None else np.minimum(np.asarray(used_gpus, dtype=float) / size, 1.0)
    work = np.broadcast_to(np.asarray(hours, dtype=float), rate.shape)
    start = startup_hours(gb, offers, case)
    stops = interruption(work, gb, offers, case)
    used = work + start + stops.saving_hours + stops.lost_hours
    billed, ahead = _billed_hours(used, offers, case)
    disk = _prior("disk_gb", case) + gb.weights + _prior("checkpoints_kept", case) * gb.checkpoint
    months = disk * used / HOURS_PER_MONTH
    home = np.full(rate.shape, gb.result)
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
    bill["storage"] = (
        months,
        months * _column(offers, "storage_usd_per_gb_month", _unknown("storage_usd_per_gb_month", case)),
    )
    bill["egress"] = (home, home * _column(offers, "egress_usd_per_gb", _unknown("egress_usd_per_gb", case)))
    return bill


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
            name=name, quantity=float(quantity[index]), unit=UNITS.get(name, "h"), usd=float(usd[index])
        )
        for name, (quantity, usd) in bill.items()
        if usd[index]
    ]


def cost_lines(
    hours: float, job: Job, model: Model, offer: Offer, case: Case = "value", used_gpus: int | None = None
) -> list[CostLine]:
    """The bill of `hours` of training bought through an offer; the sum of its lines is the price of the run.

    Raises InvalidInput when the run is longer than what the offer can reserve.
    """
    bill = lines(hours, moves(job, model), [offer], case, used_gpus)
    if np.isnan(summed(bill)[0]):
        longest = max(offer.reservation_hours)
        raise InvalidInput(
            f"{hours:.0f} h of training are more than {offer.provider} reserves",
            expected=f"at most {longest:g} h with start-up",
            hint="split the run, or leave reserved offers out (--term)",
        )
    return printed(bill, 0)


def totals(
    hours: Any, job: Job, model: Model, offers: list[Offer], case: Case = "value", used_gpus: Any = None
) -> Array:
    """Dollars of many offers at once: the sum of `cost_lines` of each; nan for what cannot be bought."""
    return summed(lines(hours, moves(job, model), offers, case, used_gpus))


def priced_all(
    job: Job, model: Model, offers: list[Offer], strategies: list[Strategy], estimates: list[Estimate]
) -> list[Plan]:
    """Estimates bought through offers, item by item: hours by speed, the bill, and the ends of both ranges.

    The range of the bill joins what is not known of the speed, the start-up, the interruptions and the billing.
    An offer that cannot be bought for so long is left out.
    """
    if not offers:
        return []
    gb = moves(job, model)
    case_hours = {
        "value": _hours(job, estimates, "tokens_per_s"),
        "low": _hours(job, estimates, "tokens_per_s_high"),
        "high": _hours(job, estimates, "tokens_per_s_low"),
    }
    bills = {case: lines(hours, gb, offers, cast(Case, case)) for case, hours in case_hours.items()}
    usd = {case: summed(bill) for case, bill in bills.items()}
    stops = interruption(case_hours["value"], gb, offers)
    plans: list[Plan] = []
    for i, offer in enumerate(offers):
        mean = float(usd["value"][i])
        if np.isnan(usd["value"][i]):
            continue
        plans.append(
            Plan.model_construct(
                offer=offer,
                strategy=strategies[i],
                estimate=estimates[i],
                hours=float(case_hours["value"][i]),
                hours_low=float(case_hours["low"][i]),
                hours_high=float(case_hours["high"][i]),
                usd=mean,
                usd_low=min(float(usd["low"][i]), mean),
                usd_high=max(float(usd["high"][i]), mean),
                usd_per_million_tokens=mean / (job.tokens / MILLION),
                cost_lines=printed(bills["value"], i),
                risk=risk(offer, estimates[i], stops, i, bills["value"]),
            )
        )
    return plans


def _hours(job: Job, estimates: list[Estimate], field: str) -> Array:
    rates = np.array([getattr(found, field) for found in estimates], dtype=float)
    return job.tokens / rates / SECONDS_PER_HOUR


def priced(job: Job, model: Model, offer: Offer, strategy: Strategy, estimate: Estimate) -> Plan:
    """One estimate bought through one offer."""
    return priced_all(job, model, [offer], [strategy], [estimate])[0]


def risk(offer: Offer, estimate: Estimate, stops: Interruption, index: int, bill: Bill) -> str:
    """What may go wrong with an offer, in words: interruptions, what is not published, what must be paid ahead."""
    found: list[str] = []
    if stops.hazard[index] > 0:
        every = 1.0 / stops.hazard[index]
        found.append(
            f"interrupted about every {every:,.0f} h, {stops.expected[index]:.2f} times in this run: "
            f"save every {60 * stops.interval_hours[index]:,.0f} min and resume by itself"
        )
        if offer.billed_while_stopped:
            found.append(f"billed while stopped: {offer.billed_while_stopped}")
    if offer.term == "market-floor":
        found.append("the floor of a market, not an offer: it may be gone")
    if offer.block_gpu_hours or offer.reservation_hours:
        found.append(_ahead(offer, bill, index))
    if offer.billing_increment_s is None:
        found.append("billing step not published")
    if offer.deposit_usd:
        found.append(f"needs a balance of ${offer.deposit_usd:g} to start")
    if offer.ram_gib is not None and estimate.host_ram_gib > offer.ram_gib:
        found.append(f"host RAM {offer.ram_gib:.0f} GiB, wants {estimate.host_ram_gib:.0f}")
    if offer.note:
        found.append(offer.note)
    return "; ".join(found)


def _gpu_hours(offer: Offer, bill: Bill, index: int) -> float:
    """GPU-hours that the clock of a bill draws."""
    clock = (n for n in bill if n not in UNITS and n != "paid ahead and left over")
    return sum(float(bill[name][0][index]) for name in clock) * offer.rig.n_gpus


def _ahead(offer: Offer, bill: Bill, index: int) -> str:
    left = float(bill["paid ahead and left over"][0][index])
    if offer.reservation_hours:
        return f"reserved ahead, {left:.1f} h of it unused"
    drawn = _gpu_hours(offer, bill, index)
    bought = billing.blocks_to_buy(drawn, offer.block_gpu_hours)
    blocks = " + ".join(f"{count} x {size}" for size, count in bought.items())
    return f"buy {blocks} GPU-hours ahead, {left * offer.rig.n_gpus:.1f} left over"


def what_to_buy(hours: float, job: Job, model: Model, offer: Offer) -> dict[int, int]:
    """Prepaid blocks of each size that cover the run, start-up included. Raises InvalidInput where none are sold."""
    if not offer.block_gpu_hours:
        raise InvalidInput(f"{offer.provider} sells no prepaid blocks here", expected="an offer of term prepaid-block")
    bill = lines(hours, moves(job, model), [offer])
    return billing.blocks_to_buy(_gpu_hours(offer, bill, 0), offer.block_gpu_hours)


def smallest_node(offers: list[Offer], n_gpus: int) -> list[Offer]:
    """For each provider, card and term the machine with the fewest GPUs that holds `n_gpus`, cheapest of its size.

    Clouds sell whole nodes: where 2 GPUs are wanted and 8 are sold, 8 are billed.
    """
    best: dict[tuple[str, str, str], Offer] = {}
    for offer in sorted(offers, key=lambda o: (o.rig.n_gpus, o.usd_per_hour)):
        if offer.rig.n_gpus >= n_gpus:
            best.setdefault((offer.provider, offer.rig.gpu, offer.term), offer)
    return list(best.values())
