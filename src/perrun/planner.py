"""The main job: rank what can be bought for a run, say what was rejected and why, and give a verdict."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import date
from typing import Any

import numpy as np
import numpy.typing as npt

from perrun import cost, estimator, overheads, search
from perrun.errors import InvalidInput, NothingFits, PerrunError
from perrun.facts import models
from perrun.prices import freshness
from perrun.strategies import ranks_per_copy
from perrun.terms import Estimate, Job, Model, Offer, Plan, PlanAnswer, Rejected, Rig, Strategy
from perrun.units import SECONDS_PER_HOUR

Array = npt.NDArray[np.float64]
DEFAULT_MIN_FIT = 0.9
LEAST_SAID = 0.01  # what two decimals can say, of probabilities and of hours
SORTS = ("usd", "hours", "usd_per_million_tokens", "fit")


@dataclass(frozen=True, slots=True)
class Wish:
    """What the user wants of a plan. fixed: strategy settings that are not searched, by their field names.

    n_gpus: run on so many GPUs, in the smallest machine of each provider that holds them. keep_days: days that the disk
    is kept after the run. mtbi_hours: the user's own mean time between interruptions, instead of published classes.
    """

    fixed: dict[str, Any] = field(default_factory=dict[str, Any])
    budget_usd: float | None = None
    deadline_h: float | None = None
    gpus: tuple[str, ...] = ()
    providers: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    terms: tuple[str, ...] = ()
    max_gpus: int | None = None
    n_gpus: int | None = None
    keep_days: float = 0.0
    mtbi_hours: float | None = None
    min_fit: float = DEFAULT_MIN_FIT
    sort: str = "usd"
    limit: int | None = None


def plan(job: Job, offers: list[Offer], wish: Wish | None = None, today: date | None = None) -> PlanAnswer:
    """Every offer that can run the job, cheapest first, each with its estimate and its bill.

    today: the day from which the age of prices counts.
    Raises what `facts` raise for names, InvalidInput for an empty price book, for filters that exclude every offer
    and for a batch that cannot be shared, UnsupportedByGpu when no card can run the job at all, and NothingFits with
    the nearest miss when no rig holds it or no plan keeps the budget or the deadline.
    """
    wish = wish or Wish()
    model = models.get(job.model)
    wanted = [_own_mtbi(offer, wish) for offer in offers if _wanted(offer, wish)]
    _check_offers(offers, wanted, wish)
    if wish.n_gpus is not None:
        wanted = _holding(wanted, wish.n_gpus)
    rigs = list(dict.fromkeys(_used(offer.rig, wish) for offer in wanted))
    found, refused = search.best(job, model, rigs, wish.fixed, wish.min_fit)
    misses = [_miss(best, job, wish) for best in found if best.strategy is None]
    by_rig = {best.rig: best for best in found if best.strategy is not None}
    if not by_rig:
        raise _nothing(job, model, refused, misses, wish)
    market = _market(job, model, [offer for offer in wanted if _used(offer.rig, wish) in by_rig], by_rig, wish)
    order = _ranked(market, wish)
    shown = order[: wish.limit]
    cheapest, fastest = order[np.argmin(market.usd[order])], order[np.argmin(market.hours[order])]
    on_demand = {overheads.machine(o): o.usd_per_hour for o in offers if o.term == "on-demand"}
    built = _built(job, model, market, dict.fromkeys((*shown, cheapest, fastest)), wish, on_demand)
    plans = sorted((built[i] for i in shown), key=lambda p: _key(p, wish.sort))
    return PlanAnswer(
        job=job,
        plans=plans,
        rejected=sorted(refused + misses, key=lambda r: (r.rig.gpu, r.rig.n_gpus)),
        verdict=verdict(built[cheapest], built[fastest]),
        assumptions=assumptions(job, (plans or [built[cheapest]])[0]),
        prices_as_of=max(market.offers[i].observed_at for i in order),
        prices_age=freshness.said((market.offers[i].observed_at for i in order), today),
    )


def _own_mtbi(offer: Offer, wish: Wish) -> Offer:
    if wish.mtbi_hours is None or offer.term not in overheads.STOPS:
        return offer
    return offer.model_copy(update={"mtbi_hours": wish.mtbi_hours})


def _holding(offers: list[Offer], n_gpus: int) -> list[Offer]:
    """The smallest machines that hold so many GPUs. Raises InvalidInput when there is none."""
    found = cost.smallest_node(offers, n_gpus)
    if not found:
        largest = max(offer.rig.n_gpus for offer in offers)
        raise InvalidInput(f"no offer holds {n_gpus} GPUs", expected=f"at most {largest}")
    return found


def _used(rig: Rig, wish: Wish) -> Rig:
    """The part of a machine that the job runs on."""
    if wish.n_gpus in (None, rig.n_gpus):
        return rig
    return rig.model_copy(update={"n_gpus": wish.n_gpus})


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
    for name, chosen, known in (
        ("provider", wish.providers, {offer.provider for offer in offers}),
        ("region", wish.regions, {offer.region for offer in offers}),
        ("term", wish.terms, {offer.term for offer in offers}),
    ):
        strange = [one for one in chosen if one not in known]
        if strange:
            raise InvalidInput(f"no offer with {name} {', '.join(strange)}", expected=", ".join(sorted(known)))
    sold = {offer.rig.gpu for offer in offers}
    if wish.gpus and not sold & set(wish.gpus):  # one name may mean several cards, of which one on offer is enough
        raise InvalidInput(f"no offer with gpu {', '.join(wish.gpus)}", expected=", ".join(sorted(sold)))
    if not wanted:
        raise InvalidInput("no offer satisfies all filters at once", hint="leave one of them out")


def _miss(best: search.Best, job: Job, wish: Wish) -> Rejected:
    if np.isnan(best.needs_gib):
        return Rejected(rig=best.rig, reason=_unshared(best.rig, job, wish))
    sure = f": fits with {best.fits:.0%}" if best.fits >= LEAST_SAID else ""
    return Rejected(
        rig=best.rig,
        reason=f"needs {best.needs_gib:.1f} GiB, has {best.has_gib:.1f}{sure}",
        needs_gib=best.needs_gib,
        has_gib=best.has_gib,
    )


def _unshared(rig: Rig, job: Job, wish: Wish) -> str:
    """Why the global batch cannot be shared."""
    copies = rig.n_gpus // ranks_per_copy(wish.fixed)
    share, rest = divmod(job.global_batch, copies)
    if rest or not share:
        return f"global_batch {job.global_batch} cannot be shared evenly by {copies} data-parallel GPUs"
    return f"micro_batch {wish.fixed.get('micro_batch')} does not divide the {share} sequences of a GPU per step"


def _nothing(job: Job, model: Model, refused: list[Rejected], misses: list[Rejected], wish: Wish) -> PerrunError:
    """No rig can do it: the nearest miss, or what is wrong with the question."""
    close = sorted((r for r in misses if r.needs_gib and r.has_gib), key=lambda r: r.needs_gib / r.has_gib)  # type: ignore[operator]
    if close:
        nearest = close[0]
        return NothingFits(
            f"no rig on offer holds {job.method} of {job.model}: the nearest, {nearest.rig}, {nearest.reason}",
            hint="try --method qlora, a shorter --seq-len, or --optimizer adamw-8bit",
        )
    if misses:
        smallest = min(misses, key=lambda r: r.rig.n_gpus)
        return InvalidInput(smallest.reason, hint="change --global-batch, --micro-batch or the number of GPUs")
    try:
        search.admitted(job, model, wish.fixed, refused[0].rig)
    except PerrunError as why:
        return why
    raise AssertionError("a rig that was refused can run the job")


@dataclass(frozen=True, slots=True)
class _Market:
    """Offers whose rig can run the job, and what a run through each takes."""

    offers: list[Offer]
    best: list[search.Best]
    rigs: list[Rig]
    hours: Array
    usd: Array
    fits: Array


def _market(job: Job, model: Model, offers: list[Offer], by_rig: dict[Rig, search.Best], wish: Wish) -> _Market:
    rigs = [_used(offer.rig, wish) for offer in offers]
    best = [by_rig[rig] for rig in rigs]
    hours = job.tokens / np.array([one.tokens_per_s for one in best]) / SECONDS_PER_HOUR
    usd = cost.totals(hours, job, model, offers, used_gpus=wish.n_gpus, keep_days=wish.keep_days)
    return _Market(offers, best, rigs, hours, usd, np.array([one.fits for one in best]))


def _ranked(market: _Market, wish: Wish) -> list[int]:
    """Indices of the offers within budget and deadline, best first. Raises NothingFits when there is none."""
    usd, hours = market.usd, market.hours
    possible = ~np.isnan(usd)  # nan: cannot be bought for so long
    within = possible & (usd <= (wish.budget_usd or np.inf)) & (hours <= (wish.deadline_h or np.inf))
    if not within.any():
        raise _too_dear(usd[possible], hours[possible], wish)
    keys = {"hours": (usd, hours), "fit": (usd, -market.fits.round(2))}.get(wish.sort, (hours, usd))
    return [int(i) for i in np.lexsort(keys) if within[i]]


def _built(
    job: Job, model: Model, market: _Market, chosen: Iterable[int], wish: Wish, on_demand: dict[Any, float]
) -> dict[int, Plan]:
    """Full plans of some offers; each rig is estimated once. on_demand: prices by `overheads.machine`."""
    estimates: dict[Rig, Estimate] = {}
    strategies: list[Strategy] = []
    indices = list(chosen)
    offers, rigs = [market.offers[i] for i in indices], [market.rigs[i] for i in indices]
    for i, rig in zip(indices, rigs, strict=True):
        strategy = market.best[i].strategy
        assert strategy is not None
        strategies.append(strategy)
        if rig not in estimates:
            estimates[rig] = estimator.answer(estimator.ask(job, strategy, rig, model))
    plans = cost.priced_all(
        job,
        model,
        offers,
        strategies,
        [estimates[rig] for rig in rigs],
        used_gpus=wish.n_gpus,
        keep_days=wish.keep_days,
        on_demand=on_demand,
    )
    return dict(zip(indices, plans, strict=True))


def _too_dear(usd: Array, hours: Array, wish: Wish) -> NothingFits:
    if not usd.size:
        return NothingFits("no offer can be bought for so long a run", hint="leave reserved offers out (--term)")
    parts: list[str] = []
    if wish.budget_usd is not None:
        parts.append(f"no plan under ${short(wish.budget_usd)}: the cheapest is ${short(float(usd.min()))}")
    if wish.deadline_h is not None:
        parts.append(f"no plan within {wish.deadline_h:g} h: the fastest takes {short(float(hours.min()))} h")
    return NothingFits("; ".join(parts), hint="fewer tokens or epochs, another method, or a wider limit")


def _key(plan_: Plan, sort: str) -> tuple[float, ...]:
    if sort == "hours":
        return (plan_.hours, plan_.usd)
    if sort == "fit":
        return (-round(plan_.estimate.fits_probability, 2), plan_.usd)
    return (plan_.usd, plan_.hours)


def short(number: float) -> str:
    """Hours or dollars with two decimals, or with two digits where those would say 0.00."""
    return f"{number:,.2f}" if number >= LEAST_SAID or not number else f"{number:.2g}"


def rig_said(plan_: Plan) -> str:
    """The machine that is bought, and how much of it is used: '2 of 8x H100-SXM-80GB'."""
    return f"{plan_.used_gpus} of {plan_.offer.rig}" if plan_.used_gpus else str(plan_.offer.rig)


def _name(plan_: Plan) -> str:
    return f"{rig_said(plan_)} at {plan_.offer.provider} ({plan_.offer.term})"


def verdict(cheapest: Plan, fastest: Plan) -> str:
    """One line: the cheapest, and the fastest if it is another one, with what it costs to wait less."""
    line = f"Cheapest: {_name(cheapest)}, ${cheapest.usd:,.2f} in {short(cheapest.hours)} h"
    if fastest is cheapest:
        return f"{line}; it is also the fastest."
    more, saved = fastest.usd - cheapest.usd, cheapest.hours - fastest.hours
    return (
        f"{line}. Fastest: {_name(fastest)}, {short(fastest.hours)} h for ${fastest.usd:,.2f}: "
        f"{short(saved)} h less for ${more:,.2f} more."
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
