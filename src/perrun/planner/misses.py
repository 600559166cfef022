"""Why nothing can be had: what each rig lacks, and the nearest miss on every limit."""

from typing import Any

import numpy as np

from perrun import cost, search
from perrun.errors import InvalidInput, NothingFits, PerrunError
from perrun.planner.market import Array, Market
from perrun.planner.wish import Wish
from perrun.planner.words import LEAST_SAID, short
from perrun.strategies import ranks_per_copy
from perrun.terms import Job, Model, Rejected, Rig

HALVINGS = 40  # of the share of tokens that a limit allows


def miss(best: search.Best, job: Job, wish: Wish) -> Rejected:
    """A rig on which no strategy fits, or whose GPUs cannot share the batch."""
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


def nothing(job: Job, model: Model, refused: list[Rejected], misses: list[Rejected], wish: Wish) -> PerrunError:
    """No rig can do it: the nearest miss, or what is wrong with the question."""
    close = sorted((r for r in misses if r.needs_gib and r.has_gib), key=lambda r: r.needs_gib / r.has_gib)  # type: ignore[operator]
    if close:
        nearest = close[0]
        return NothingFits(
            f"no rig on offer holds {job.method} of {job.model}: the nearest, {nearest.rig}, {nearest.reason}",
            hint="--alternatives shows jobs that fit; --max-gpus 16 or more makes clusters",
        )
    if misses:
        smallest = min(misses, key=lambda r: r.rig.n_gpus)
        return InvalidInput(smallest.reason, hint="change --global-batch, --micro-batch or the number of GPUs")
    try:
        search.admitted(job, model, wish.fixed, refused[0].rig)
    except PerrunError as why:
        return why
    raise AssertionError("a rig that was refused can run the job")


def beyond(job: Job, model: Model, market: Market, possible: Any, wish: Wish) -> NothingFits:
    """No plan keeps the limits: the nearest miss on each, and how many tokens it would allow.

    possible: which offers can be bought for so long at all.
    """
    if not possible.any():
        return NothingFits("no offer can be bought for so long a run", hint="leave reserved offers out (--term)")
    usd, hours = market.usd * wish.runs, market.hours
    parts: list[str] = []
    within_time = possible & (hours <= (wish.deadline_h or np.inf))
    within_money = possible & (usd <= (wish.budget_usd or np.inf))
    if wish.budget_usd is not None and not within_money.any():
        tokens = _allowed(job, model, market, wish)
        allowed = f"; under ${short(wish.budget_usd)} needs <= {_million(tokens)} tokens" if tokens else ""
        parts.append(f"no plan under ${short(wish.budget_usd)}; cheapest ${short(float(usd[possible].min()))}{allowed}")
    if wish.deadline_h is not None and not within_time.any():
        fastest = float(hours[possible].min())
        tokens = job.tokens * wish.deadline_h / fastest
        parts.append(
            f"no plan within {wish.deadline_h:g} h; fastest {short(fastest)} h; "
            f"within {wish.deadline_h:g} h needs <= {_million(tokens)} tokens"
        )
    if not parts:  # each limit alone can be kept
        cheapest, fastest = float(usd[within_time].min()), float(hours[within_money].min())
        parts.append(
            f"no plan under ${short(wish.budget_usd or 0)} and within {wish.deadline_h:g} h: within the time the "
            f"cheapest is ${short(cheapest)}, within the money the fastest takes {short(fastest)} h"
        )
    return NothingFits("; ".join(parts), hint="--alternatives shows cheaper jobs")


def _million(tokens: float) -> str:
    return f"{tokens / 1e6:.1f}M" if tokens >= 1e5 else f"{tokens:,.0f}"


def _allowed(job: Job, model: Model, market: Market, wish: Wish) -> float:
    """Most tokens of a run whose bill some offer keeps within the budget; 0 when start-up alone costs more."""
    budget = (wish.budget_usd or 0.0) / wish.runs

    def least(share: float) -> float:
        found: Array = cost.totals(
            market.hours * share, job, model, market.offers, used_gpus=wish.n_gpus, keep_days=wish.keep_days
        )
        return float(np.nanmin(found))

    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if least(middle) <= budget else (low, middle)
    return low * job.tokens if low > 1e-9 else 0.0
