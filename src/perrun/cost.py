"""The bill of a run as line items: its total is their sum, and nothing else is added."""

from functools import cache
from typing import Any

import numpy as np

from perrun.physics import billing, params, spot
from perrun.prices import snapshot
from perrun.terms import CostLine, Estimate, Job, Model, Offer, Plan, Strategy
from perrun.units import GB, HOURS_PER_MONTH, MILLION, SECONDS_PER_HOUR

RISKS = {
    "interruptible": "may be interrupted: save and resume must work",
    "market-floor": "the floor of a market, not an offer: it may be gone",
    "prepaid-block": "paid ahead in whole blocks",
    "reserved": "a commitment",
}


@cache
def _adapter_gb(model_id: str, targets: str, rank: int, shape: Any) -> float:
    del model_id
    return 4.0 * params.adapters_total(shape, targets, rank) / GB


def checkpoint_gb(job: Job, model: Model) -> float:
    """GB of one checkpoint: what is trained with its optimizer states.

    Adapters in fp32 with two moments (12 bytes a parameter); full fine-tuning bf16 weights and fp32 moments
    (2 + 8 bytes). Source: transformers Trainer saves model and optimizer state dicts.
    """
    if job.adapters:
        return 3.0 * _adapter_gb(job.model, job.lora_targets, job.lora_rank, model.shape)
    return 10.0 * model.total_params / GB


def weights_gb(model: Model) -> float:
    """GB of published weights to download: two bytes a parameter, or half a byte where they come in 4 bits."""
    per_parameter = 0.56 if model.stored_quantization in ("gptq", "awq", "mxfp4") else 2.0
    return per_parameter * model.total_params / GB


def startup_hours(model: Model, offer: Offer) -> float:
    """Hours that are billed before the first step: boot, image, installation, download of the weights."""
    prior = snapshot.priors()
    boot = snapshot.providers().get(offer.provider, {}).get("boot_s") or prior["boot_s"]
    moved = (prior["image_gb"] + weights_gb(model)) / prior["network_gb_s"]
    return (float(boot) + moved + prior["install_s"]) / SECONDS_PER_HOUR


def overhead_hours(hours: float, job: Job, model: Model, offer: Offer) -> float:
    """Expected hours of saving, lost work and restarts on an interruptible machine; 0 on others."""
    if offer.term != "interruptible":
        return 0.0
    prior = snapshot.priors()
    saving = checkpoint_gb(job, model) / prior["checkpoint_gb_s"] / SECONDS_PER_HOUR
    hazard = spot.hazard_per_hour(prior["mean_hours_between_interruptions"])
    restart = prior["restart_s"] / SECONDS_PER_HOUR + startup_hours(model, offer)
    return float(spot.expected_overhead_hours(hours, hazard, max(saving, 1e-4), restart))


def cost_lines(hours: float, job: Job, model: Model, offer: Offer) -> list[CostLine]:
    """The bill of `hours` of training bought through an offer; the sum of its lines is the price of the run."""
    start = startup_hours(model, offer)
    extra = overhead_hours(hours, job, model, offer)
    used = hours + start + extra
    billed = float(billing.billed_seconds(used * SECONDS_PER_HOUR, offer.billing_increment_s, offer.minimum_s))
    rate = offer.usd_per_hour
    lines = [
        CostLine(name="training", quantity=hours, unit="h", usd=hours * rate),
        CostLine(name="start-up", quantity=start, unit="h", usd=start * rate),
    ]
    if extra:
        lines.append(CostLine(name="expected interruptions", quantity=extra, unit="h", usd=extra * rate))
    rounding = billed / SECONDS_PER_HOUR - used
    if offer.block_gpu_hours:
        rounding = _left_over(used, offer)
        lines.append(CostLine(name="left in prepaid blocks", quantity=rounding, unit="h", usd=rounding * rate))
    elif rounding > 1e-9:
        lines.append(CostLine(name="billing increment and minimum", quantity=rounding, unit="h", usd=rounding * rate))
    storage = storage_line(used, job, model, offer)
    return [*lines, storage] if storage else lines


def _left_over(hours: float, offer: Offer) -> float:
    """Hours of the rig that whole prepaid blocks hold beyond the run."""
    assert offer.block_gpu_hours
    gpu_hours = hours * offer.rig.n_gpus
    bought = float(billing.blocks(gpu_hours, offer.block_gpu_hours)) * offer.block_gpu_hours
    return (bought - gpu_hours) / offer.rig.n_gpus


def storage_line(hours: float, job: Job, model: Model, offer: Offer) -> CostLine | None:
    """Disk for image, data, weights and checkpoints while the run lasts, where the provider's price is known."""
    if offer.storage_usd_per_gb_month is None:
        return None
    prior = snapshot.priors()
    disk = prior["disk_gb"] + weights_gb(model) + prior["checkpoints_kept"] * checkpoint_gb(job, model)
    months = disk * hours / HOURS_PER_MONTH
    return CostLine(name="storage", quantity=months, unit="GB-month", usd=months * offer.storage_usd_per_gb_month)


def total(lines: list[CostLine]) -> float:
    return sum(line.usd for line in lines)


def priced(job: Job, model: Model, offer: Offer, strategy: Strategy, estimate: Estimate) -> Plan:
    """An estimate bought through an offer: hours by speed, the bill, and both at the ends of the range."""
    hours, fastest, slowest = (
        job.tokens / rate / SECONDS_PER_HOUR
        for rate in (estimate.tokens_per_s, estimate.tokens_per_s_high, estimate.tokens_per_s_low)
    )
    lines = cost_lines(hours, job, model, offer)
    usd = total(lines)
    return Plan.model_construct(
        offer=offer,
        strategy=strategy,
        estimate=estimate,
        hours=hours,
        hours_low=fastest,
        hours_high=slowest,
        usd=usd,
        usd_low=total(cost_lines(fastest, job, model, offer)),
        usd_high=total(cost_lines(slowest, job, model, offer)),
        usd_per_million_tokens=usd / (job.tokens / MILLION),
        cost_lines=lines,
        risk=RISKS.get(offer.term, ""),
    )


def totals(hours: Any, start: Any, extra: Any, rate: Any, increment: Any, minimum: Any) -> Any:
    """Dollars of many runs at once, without storage and blocks: what the sum of `cost_lines` is for each [USD]."""
    used = np.asarray(hours, dtype=float) + start + extra
    return billing.billed_seconds(used * SECONDS_PER_HOUR, increment, minimum) / SECONDS_PER_HOUR * rate
