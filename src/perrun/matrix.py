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
    cheapest = _cheapest(offers)
    cells: list[FitCell] = []
    for name, change in chosen.items():
        wanted = job.model_copy(update=change)
        found, rejected = search.best(wanted, model, asked, fixed or {}, SURE)
        by_rig = {best.rig: best for best in found}
        reasons = {one.rig: one.reason for one in rejected}
        cells += [_cell(name, wanted, rig, by_rig.get(rig), reasons.get(rig), cheapest, model) for rig in asked]
    shown = (cheapest[rig.gpu, rig.n_gpus] for rig in asked if (rig.gpu, rig.n_gpus) in cheapest)
    age = freshness.said(offer.observed_at for offer in shown)
    return FitAnswer(job=job, methods=list(chosen), cells=cells, prices_age=age)


def _cheapest(offers: list[Offer]) -> dict[tuple[str, int], Offer]:
    """The cheapest on-demand offer by card and count."""
    found: dict[tuple[str, int], Offer] = {}
    for offer in offers:
        key = (offer.rig.gpu, offer.rig.n_gpus)
        if offer.term == "on-demand" and (key not in found or offer.usd_per_hour < found[key].usd_per_hour):
            found[key] = offer
    return found


def _cell(
    name: str,
    job: Job,
    rig: Rig,
    best: search.Best | None,
    reason: str | None,
    cheapest: dict[tuple[str, int], Offer],
    model: Model,
) -> FitCell:
    offer = cheapest.get((rig.gpu, rig.n_gpus))
    price = offer.usd_per_hour if offer else None
    if best is None or math.isnan(best.needs_gib):
        why = reason or f"{rig.n_gpus} GPUs cannot share the global batch evenly"
        return FitCell(
            rig=rig, method=name, mark="no", needs_gib=None, has_gib=None, fits_probability=0.0,
            usd_per_hour=price, usd_per_run=None, why_not=why,
        )  # fmt: skip
    mark = "yes" if best.strategy is not None else "tight" if best.fits >= POSSIBLE else "no"
    usd = None
    if best.strategy is not None and offer is not None:
        hours = job.tokens / best.tokens_per_s / SECONDS_PER_HOUR
        usd = cost.total(cost.cost_lines(hours, job, model, offer))
    return FitCell(
        rig=rig,
        method=name,
        mark=mark,
        needs_gib=best.needs_gib,
        has_gib=best.has_gib,
        fits_probability=min(max(best.fits, 0.0), 1.0),
        usd_per_hour=price,
        usd_per_run=usd,
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
