"""The main job: rank what can be bought for a run, say what was rejected and why, and give a verdict."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from perrun import cost, estimate, search
from perrun.errors import InvalidInput, NothingFits
from perrun.facts import models
from perrun.terms import Estimate, Job, Model, Offer, Plan, PlanAnswer, Rejected, Rig, Strategy

DEFAULT_MIN_FIT = 0.9
SORTS = ("usd", "hours", "usd_per_million_tokens", "fit")


@dataclass(frozen=True, slots=True)
class Wish:
    """What the user wants of a plan. fixed: strategy settings that are not searched, by their field names."""

    fixed: dict[str, Any] = field(default_factory=dict[str, Any])
    budget_usd: float | None = None
    deadline_h: float | None = None
    gpus: tuple[str, ...] = ()
    providers: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    terms: tuple[str, ...] = ()
    max_gpus: int | None = None
    min_fit: float = DEFAULT_MIN_FIT
    sort: str = "usd"
    limit: int | None = None


def plan(job: Job, offers: list[Offer], wish: Wish | None = None) -> PlanAnswer:
    """Every offer that can run the job, cheapest first, each with its estimate and its bill.

    Raises what `facts` raise for names, InvalidInput for an empty price book or for constraints that exclude every
    offer, and NothingFits with the nearest misses when no rig holds the job.
    """
    wish = wish or Wish()
    model = models.get(job.model)
    wanted = [offer for offer in offers if _wanted(offer, wish)]
    _check_offers(offers, wanted, wish)
    rigs = list(dict.fromkeys(offer.rig for offer in wanted))
    found, rejected = search.best(job, model, rigs, wish.fixed, wish.min_fit)
    rejected += [_miss(best) for best in found if best.strategy is None]
    by_rig = {best.rig: best for best in found if best.strategy is not None}
    if not by_rig:
        raise _nothing(job, rejected)
    return _answer(job, model, [offer for offer in wanted if offer.rig in by_rig], by_rig, rejected, wish)


# The floor of a market is what the cheapest host asked on that day, not something that can be bought: it is ranked
# only when asked for.
USUAL_TERMS = ("on-demand", "interruptible", "reserved", "prepaid-block", "owned")


def _wanted(offer: Offer, wish: Wish) -> bool:
    return (
        (not wish.gpus or offer.rig.gpu in wish.gpus)
        and (not wish.providers or offer.provider in wish.providers)
        and (not wish.regions or offer.region in wish.regions)
        and offer.term in (wish.terms or USUAL_TERMS)
        and (wish.max_gpus is None or offer.rig.n_gpus <= wish.max_gpus)
    )


def _check_offers(offers: list[Offer], wanted: list[Offer], wish: Wish) -> None:
    if not offers:
        raise InvalidInput("the price book is empty", hint="perrun prices import FILE.csv, or leave --prices out")
    if wanted:
        return
    for name, chosen, known in (
        ("gpu", wish.gpus, {offer.rig.gpu for offer in offers}),
        ("provider", wish.providers, {offer.provider for offer in offers}),
        ("region", wish.regions, {offer.region for offer in offers}),
        ("term", wish.terms, {offer.term for offer in offers}),
    ):
        if chosen and not known & set(chosen):
            raise InvalidInput(f"no offer with {name} {', '.join(chosen)}", expected=", ".join(sorted(known)))
    raise InvalidInput("no offer satisfies all filters at once", hint="leave one of them out")


def _miss(best: search.Best) -> Rejected:
    if np.isnan(best.needs_gib):
        return Rejected(rig=best.rig, reason=f"{best.rig.n_gpus} GPUs cannot share the global batch evenly")
    return Rejected(
        rig=best.rig,
        reason=f"needs {best.needs_gib:.1f} GiB, has {best.has_gib:.1f}",
        needs_gib=best.needs_gib,
        has_gib=best.has_gib,
    )


def _nothing(job: Job, rejected: list[Rejected]) -> NothingFits:
    close = sorted((r for r in rejected if r.needs_gib and r.has_gib), key=lambda r: r.needs_gib / r.has_gib)  # type: ignore[operator]
    if close:
        nearest = close[0]
        return NothingFits(
            f"no rig on offer holds {job.method} of {job.model}: the nearest, "
            f"{nearest.rig.n_gpus}x {nearest.rig.gpu}, {nearest.reason}",
            hint="try --method qlora, a shorter --seq-len, or --optimizer adamw-8bit",
        )
    reasons = sorted({r.reason for r in rejected})
    return NothingFits("no rig on offer can run the job", expected="; ".join(reasons[:3]))


def _answer(
    job: Job,
    model: Model,
    offers: list[Offer],
    by_rig: dict[Rig, search.Best],
    rejected: list[Rejected],
    wish: Wish,
) -> PlanAnswer:
    estimates: dict[Rig, Estimate] = {}
    strategies: list[Strategy] = []
    for offer in offers:
        best = by_rig[offer.rig]
        assert best.strategy is not None
        if offer.rig not in estimates:
            estimates[offer.rig] = estimate.answer(estimate.ask(job, best.strategy, offer.rig, model))
        strategies.append(best.strategy)
    plans = cost.priced_all(job, model, offers, strategies, [estimates[offer.rig] for offer in offers])
    within = [p for p in plans if _within(p, wish)]
    if not within:
        raise _too_dear(plans, wish)
    within.sort(key=lambda p: _key(p, wish.sort))
    dates = [p.offer.observed_at for p in within]
    return PlanAnswer(
        job=job,
        plans=within[: wish.limit],
        rejected=sorted(rejected, key=lambda r: (r.rig.gpu, r.rig.n_gpus)),
        verdict=verdict(within),
        assumptions=assumptions(job, within[0]),
        prices_as_of=max(dates),
    )


def _within(plan_: Plan, wish: Wish) -> bool:
    return (wish.budget_usd is None or plan_.usd <= wish.budget_usd) and (
        wish.deadline_h is None or plan_.hours <= wish.deadline_h
    )


def _too_dear(plans: list[Plan], wish: Wish) -> NothingFits:
    cheapest = min(plans, key=lambda p: p.usd)
    fastest = min(plans, key=lambda p: p.hours)
    parts: list[str] = []
    if wish.budget_usd is not None:
        parts.append(f"no plan under ${wish.budget_usd:,.2f}: the cheapest is ${cheapest.usd:,.2f}")
    if wish.deadline_h is not None:
        parts.append(f"no plan within {wish.deadline_h:g} h: the fastest takes {fastest.hours:.2f} h")
    return NothingFits("; ".join(parts), hint="fewer tokens or epochs, another method, or a wider limit")


def _key(plan_: Plan, sort: str) -> tuple[float, ...]:
    if sort == "hours":
        return (plan_.hours, plan_.usd)
    if sort == "fit":
        return (-round(plan_.estimate.fits_probability, 2), plan_.usd)
    return (plan_.usd, plan_.hours)


def _name(plan_: Plan) -> str:
    return f"{plan_.offer.rig.n_gpus}x {plan_.offer.rig.gpu} at {plan_.offer.provider} ({plan_.offer.term})"


def verdict(plans: list[Plan]) -> str:
    """One line: the cheapest, and the fastest if it is another one, with what it costs to wait less."""
    cheapest = min(plans, key=lambda p: p.usd)
    fastest = min(plans, key=lambda p: p.hours)
    line = f"Cheapest: {_name(cheapest)}, ${cheapest.usd:,.2f} in {cheapest.hours:.2f} h"
    if fastest is cheapest:
        return f"{line}; it is also the fastest."
    more, saved = fastest.usd - cheapest.usd, cheapest.hours - fastest.hours
    return (
        f"{line}. Fastest: {_name(fastest)}, {fastest.hours:.2f} h for ${fastest.usd:,.2f}: "
        f"{saved:.2f} h less for ${more:,.2f} more."
    )


def assumptions(job: Job, best: Plan) -> list[str]:
    """What the answer rests on and the user did not say."""
    found = best.estimate.assumed
    strategy = best.strategy
    lines = [
        f"stack: {found.get('framework')}, {strategy.attention} attention, "
        f"{'fused' if strategy.fused_ce else found.get('loss')} loss, checkpointing {strategy.checkpointing}",
        f"{job.examples:,} examples x {job.tokens_per_example:,} tokens x {job.epochs:g} epochs = "
        f"{job.tokens / 1e6:,.1f}M tokens, {'packed to' if job.packing else 'padded up to'} {job.seq_len}",
        f"global batch {job.global_batch}, {job.precision}, {job.optimizer}",
    ]
    if job.adapters:
        lines.append(f"LoRA rank {job.lora_rank} on {job.lora_targets}")
    return lines
