"""The matrix of methods and rigs: what fits, how tightly, and what a run costs there."""

import math
import re
from typing import Any

from perrun import cost, search
from perrun.errors import InvalidInput
from perrun.facts import gpus
from perrun.prices import freshness
from perrun.terms import FitAnswer, FitCell, Job, Model, Offer, Rig
from perrun.units import SECONDS_PER_HOUR

# The four methods of the fit matrix of seed page 004, cheapest first.
METHODS: dict[str, dict[str, Any]] = {
    "qlora": {"method": "qlora"},
    "lora": {"method": "lora"},
    "full, 8-bit Adam": {"method": "full", "optimizer": "adamw-8bit"},
    "full, AdamW": {"method": "full", "optimizer": "adamw"},
}
# The rigs of the same page, with the form factors that it sells.
RIGS = (
    ("L40S-48GB", 1),
    ("A100-SXM4-80GB", 1),
    ("H100-SXM-80GB", 1),
    ("H200-SXM-141GB", 1),
    ("B200-180GB", 1),
    ("H200-SXM-141GB", 2),
    ("A100-SXM4-80GB", 4),
    ("H100-SXM-80GB", 8),
    ("H200-SXM-141GB", 8),
    ("B200-180GB", 8),
)
RIG = re.compile(r"(?:(?P<n_gpus>\d+)\s*x\s*)?(?P<gpu>.+?)(?:\s+on\s+(?P<n_nodes>\d+)\s+nodes?)?")
SURE, POSSIBLE = 0.9, 0.1  # probabilities from which a cell says yes, and tight


def fit(
    job: Job,
    model: Model,
    offers: list[Offer],
    rigs: list[Rig] | None = None,
    methods: dict[str, dict[str, Any]] | None = None,
    fixed: dict[str, Any] | None = None,
) -> FitAnswer:
    """Each method on each rig at its fastest strategy that surely fits, or how far its smallest is from fitting.

    Raises InvalidInput for a job that no rig could run.
    """
    chosen = methods or METHODS
    asked = rigs or [Rig(gpu=gpu, n_gpus=n) for gpu, n in RIGS]
    bought = {rig: _cheapest(offers, rig) for rig in asked}
    cells: list[FitCell] = []
    for name, change in chosen.items():
        wanted = job.model_copy(update=change)
        found, rejected = search.best(wanted, model, asked, fixed or {}, SURE)
        by_rig = {best.rig: best for best in found}
        reasons = {one.rig: one.reason for one in rejected}
        cells += [_cell(name, wanted, rig, by_rig.get(rig), reasons.get(rig), bought[rig], model) for rig in asked]
    age = freshness.said(offer.observed_at for offer in bought.values() if offer)
    return FitAnswer(job=job, methods=list(chosen), cells=cells, prices_age=age)


def _cheapest(offers: list[Offer], rig: Rig) -> Offer | None:
    """The cheapest on-demand offer of a rig; of the smallest machine that holds it where no machine has its size.

    A cluster is as many machines, billed whole.
    """
    per_node = rig.n_gpus // rig.n_nodes
    sold = [
        offer
        for offer in offers
        if offer.term == "on-demand" and offer.rig.gpu == rig.gpu and offer.rig.n_nodes == 1
        if offer.rig.n_gpus == per_node or (offer.rig.n_gpus > per_node and rig.n_nodes == 1)
    ]
    if not sold:
        return None
    found = min(sold, key=lambda offer: (offer.rig.n_gpus, offer.usd_per_hour))
    if rig.n_nodes == 1:
        return found
    return found.model_copy(update={"rig": rig, "usd_per_hour": rig.n_nodes * found.usd_per_hour})


def _cell(
    name: str, job: Job, rig: Rig, best: search.Best | None, reason: str | None, offer: Offer | None, model: Model
) -> FitCell:
    price = offer.usd_per_hour if offer else None
    sold = offer.rig.n_gpus if offer and offer.rig.n_gpus > rig.n_gpus else None
    if best is None or math.isnan(best.needs_gib):
        why = reason or f"{rig.n_gpus} GPUs cannot share the global batch evenly"
        return FitCell(
            rig=rig, method=name, mark="no", needs_gib=None, has_gib=None, fits_probability=0.0,
            usd_per_hour=price, usd_per_run=None, sold_gpus=sold, why_not=why,
        )  # fmt: skip
    mark = "yes" if best.strategy is not None else "tight" if best.fits >= POSSIBLE else "no"
    usd = None
    if best.strategy is not None and offer is not None:
        hours = job.tokens / best.tokens_per_s / SECONDS_PER_HOUR
        usd = cost.total(cost.cost_lines(hours, job, model, offer, used_gpus=rig.n_gpus))
    return FitCell(
        rig=rig,
        method=name,
        mark=mark,
        needs_gib=best.needs_gib,
        has_gib=best.has_gib,
        headroom_gib=best.has_gib - best.needs_gib,
        fits_probability=min(max(best.fits, 0.0), 1.0),
        usd_per_hour=price,
        usd_per_run=usd,
        sold_gpus=sold,
        why_not=None if mark == "yes" else f"needs {best.needs_gib:.1f} GiB, has {best.has_gib:.1f}",
    )


def rig_of(text: str) -> Rig:
    """'8x H100 SXM', '16x H100 SXM on 2 nodes' or 'L40S' as a Rig.

    Raises InvalidInput, what `facts.gpus.get` raises, and pydantic's ValidationError for GPUs that nodes cannot share.
    """
    found = RIG.fullmatch(text.strip())
    if found is None or found["n_gpus"] == "0":
        raise InvalidInput(f"rig {text!r} has no GPU", expected="a count and a card, as in '8x H100 SXM'")
    gpu = gpus.get(found["gpu"]).id
    return Rig(gpu=gpu, n_gpus=int(found["n_gpus"] or 1), n_nodes=int(found["n_nodes"] or 1))
