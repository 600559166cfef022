"""The main job: rank what can be bought for a run, say what was rejected and why, and give a verdict."""

import math
from collections.abc import Iterable
from dataclasses import replace
from datetime import date
from typing import Any, cast

import numpy as np

from perrun import cost, estimator, overheads, search
from perrun.facts import models
from perrun.planner import misses as _misses
from perrun.planner.market import LEAST_NODE, Market, clusters, front, market, used, wanted
from perrun.planner.wish import SORTS, Wish
from perrun.planner.words import assumptions, rig_said, short, verdict
from perrun.prices import freshness
from perrun.terms import Experiments, Job, Model, Offer, Plan, PlanAnswer, Rejected, Rig, Strategy

__all__ = ["SORTS", "Wish", "assumptions", "plan", "rig_said", "short", "verdict"]
MOST_NODES = 8  # of a cluster that is tried unasked, when no single machine holds the job
HOURS_PER_DAY = 24.0


def plan(job: Job, offers: list[Offer], wish: Wish | None = None, today: date | None = None) -> PlanAnswer:
    """Every offer that can run the job, cheapest first, each with its estimate and its bill.

    When no machine holds the job, clusters and then CPU offload are tried. today: the day from which the age of prices
    counts. Raises what `facts` raise for names, InvalidInput for an empty price book, for wishes that contradict each
    other, for filters that exclude every offer and for a batch that cannot be shared, UnsupportedByGpu when no card can
    run the job at all, and NothingFits with the nearest misses when no rig holds it or no plan keeps the limits.
    """
    wish = wish or Wish()
    wish.check()
    model = models.get(job.model)
    on_offer = wanted(offers, wish)
    by_rig, refused, missed = _searched(job, model, on_offer, wish)
    if not by_rig and missed:
        on_offer, by_rig = _last_resort(job, model, on_offer, wish)
    if not by_rig:
        raise _misses.nothing(job, model, refused, missed, wish)
    found = market(job, model, on_offer, by_rig, wish)
    order = _ranked(job, model, found, wish)
    shown = order[: wish.limit]
    worth = found.worth(wish)
    best, fastest = order[int(np.argmin(worth[order]))], order[int(np.argmin(found.hours[order]))]
    on_demand = {overheads.machine(o): o.usd_per_hour for o in offers if o.term == "on-demand"}
    built = _built(job, model, found, dict.fromkeys((*shown, best, fastest)), wish, on_demand)
    plans = [built[i] for i in shown]
    return PlanAnswer(
        job=job,
        plans=plans,
        rejected=sorted(refused + missed, key=lambda r: (r.rig.gpu, r.rig.n_gpus)),
        verdict=verdict(built[best], built[fastest], wish.hour_usd),
        assumptions=assumptions(job, (plans or [built[best]])[0]),
        experiments=experiments(built[best], wish),
        prices_as_of=max(found.offers[i].observed_at for i in order),
        prices_age=freshness.said((found.offers[i].observed_at for i in order), today),
    )


def _searched(
    job: Job, model: Model, offers: list[Offer], wish: Wish
) -> tuple[dict[Rig, search.Best], list[Rejected], list[Rejected]]:
    """The best strategy of each rig that can run the job; rigs that cannot at all; rigs on which nothing fits."""
    rigs = list(dict.fromkeys(used(offer.rig, wish) for offer in offers))
    found, refused = search.best(job, model, rigs, wish.fixed, wish.min_fit)
    missed = [_misses.miss(best, job, wish) for best in found if best.strategy is None]
    return {best.rig: best for best in found if best.strategy is not None}, refused, missed


def _last_resort(job: Job, model: Model, offers: list[Offer], wish: Wish) -> tuple[list[Offer], dict[Rig, search.Best]]:
    """Where no machine holds the job: clusters of the largest ones, and offload to host memory where ranks shard."""
    on_offer: list[Offer] = []
    found: dict[Rig, search.Best] = {}
    several = [offer for offer in offers if used(offer.rig, wish).n_gpus > 1]
    if several and not {"offload", "sharding"} & set(wish.fixed):
        sharding = "zero3" if wish.fixed.get("framework") == "deepspeed" else "fsdp2"
        eased = replace(wish, fixed=wish.fixed | {"offload": "both", "sharding": sharding})
        held = _searched(job, model, several, eased)[0]
        on_offer = _with_room(job, model, several, held, wish)
        left = [used(offer.rig, wish) for offer in on_offer]
        found |= {rig: best for rig, best in held.items() if rig in left}
    if wish.n_gpus is None and wish.max_gpus is None:
        largest = max((offer.rig.n_gpus for offer in offers), default=LEAST_NODE)
        more = clusters(offers, MOST_NODES * largest)
        found |= _searched(job, model, more, wish)[0] if more else {}
        on_offer = on_offer + more
    return on_offer, found


def _with_room(job: Job, model: Model, offers: list[Offer], found: dict[Rig, search.Best], wish: Wish) -> list[Offer]:
    """Offers whose RAM, where it is published, holds what `found` keeps there."""
    asked = [estimator.ask(job, cast(Strategy, best.strategy), rig, model) for rig, best in found.items()]
    wants = {rig: one.host_ram_gib for rig, one in zip(found, estimator.answers(asked), strict=True)}
    return [o for o in offers if o.ram_gib is None or wants.get(used(o.rig, wish), 0.0) <= o.ram_gib]


def _ranked(job: Job, model: Model, found: Market, wish: Wish) -> list[int]:
    """Indices of the offers within budget and deadline, best first. Raises NothingFits when there is none."""
    possible = ~np.isnan(found.usd)  # nan: cannot be bought for so long
    affordable = found.usd * wish.runs <= (wish.budget_usd or np.inf)
    within = possible & affordable & (found.hours <= (wish.deadline_h or np.inf))
    if not within.any():
        raise _misses.beyond(job, model, found, possible, wish)
    worth = found.worth(wish)
    if wish.front:
        rows = np.flatnonzero(within)
        within[rows] = front(found.usd[rows].round(4), found.hours[rows].round(4), found.risk[rows].round(2))
    keys = {
        "hours": (worth, found.hours),
        "fit": (worth, -found.fits.round(2)),
        "risk": (worth, found.risk.round(2)),
    }.get(wish.sort, (found.hours, worth))
    return [int(i) for i in np.lexsort(keys) if within[i]]


def _built(
    job: Job, model: Model, found: Market, chosen: Iterable[int], wish: Wish, on_demand: dict[Any, float]
) -> dict[int, Plan]:
    """Full plans of some offers; each rig is estimated once. on_demand: prices by `overheads.machine`."""
    indices = list(chosen)
    offers, rigs = [found.offers[i] for i in indices], [found.rigs[i] for i in indices]
    strategies = [cast(Strategy, found.best[i].strategy) for i in indices]  # offers of a market have one
    by_rig = dict(zip(rigs, strategies, strict=True))
    asked = [estimator.ask(job, strategy, rig, model) for rig, strategy in by_rig.items()]
    estimates = dict(zip(by_rig, estimator.answers(asked), strict=True))
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
    waited = found.worth(wish)
    return {
        i: one.model_copy(
            update={
                "risk_probability": float(np.clip(found.risk[i], 0.0, 1.0)),
                "usd_with_waiting": float(waited[i]) if wish.hour_usd else None,
            }
        )
        for i, one in zip(indices, plans, strict=True)
    }


def experiments(best: Plan, wish: Wish) -> Experiments | None:
    """All runs through the best offer: dollars, hours of work, and days on the calendar. None for a single run.

    Runs follow one another on one machine; no more than `per_day` are started in a day.
    """
    if wish.runs == 1:
        return None
    hours = best.hours * wish.runs
    days = hours / HOURS_PER_DAY
    if wish.per_day is not None:
        days = max(days, math.ceil(wish.runs / wish.per_day))
    return Experiments(runs=wish.runs, usd=best.usd * wish.runs, hours=hours, days=days)
