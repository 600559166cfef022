"""Which of two cards: the break-even rule with its margin, its probability, and the price at which it flips."""

import math
import statistics
from dataclasses import dataclass
from datetime import date
from typing import Any

from perrun import estimator, search, speed
from perrun.errors import InvalidInput, MissingFact, NothingFits, PerrunError
from perrun.facts import gpus
from perrun.physics import allocator
from perrun.prices import freshness
from perrun.terms import Comparison, Job, Model, Offer, Rig, Side
from perrun.units import SECONDS_PER_HOUR

Z_80 = 1.2816  # standard deviations that hold 80 % of a normal distribution
CLOSE = (0.2, 0.8)  # between these probabilities the verdict is said to be open
MIN_FIT = 0.9


@dataclass(frozen=True, slots=True)
class Price:
    """Dollars per GPU-hour, where they come from, and the days on which the offers behind them were seen."""

    usd: float
    source: str
    days: tuple[date, ...] = ()


def market_price(gpu: str, offers: list[Offer], term: str = "on-demand", provider: str | None = None) -> Price:
    """The median price per GPU-hour of a card over offers of one term, or one provider's lowest.

    Raises MissingFact when nobody sells it so.
    """
    found = [o for o in offers if o.rig.gpu == gpu and o.term == term and provider in (None, o.provider)]
    if not found:
        raise MissingFact(
            f"no {term} price of {gpu}" + (f" at {provider}" if provider else ""),
            hint="give prices with --price-a and --price-b",
        )
    per_gpu = [o.usd_per_hour / o.rig.n_gpus for o in found]
    days = tuple(o.observed_at for o in found)
    if provider:
        return Price(min(per_gpu), f"{provider}, {max(days)}", days)
    return Price(statistics.median(per_gpu), f"median of {len(found)} {term} offers, newest {max(days)}", days)


def side(job: Job, model: Model, rig: Rig, price: Price, fixed: dict[str, Any]) -> Side:
    """One rig at its fastest strategy that fits. Raises what `search.best` raises, and NothingFits."""
    found, rejected = search.best(job, model, [rig], fixed, MIN_FIT)
    if rejected:
        raise InvalidInput(f"{rig.gpu}: {rejected[0].reason}")
    best = found[0]
    if best.strategy is None:
        raise NothingFits(
            f"{job.method} of {job.model} does not fit {rig}: needs {best.needs_gib:.1f} GiB, has {best.has_gib:.1f}",
            hint="more GPUs (--n-gpus), another method, or shorter rows",
        )
    answer = estimator.answer(estimator.ask(job, best.strategy, rig, model))
    hours = job.tokens / answer.tokens_per_s / SECONDS_PER_HOUR
    widest = max(answer.time_lines.items(), key=lambda item: item[1])
    return Side(
        rig=rig,
        precision=job.precision,
        usd_per_gpu_hour=price.usd,
        price_of=price.source,
        hours=hours,
        usd=hours * price.usd * rig.n_gpus,
        tokens_per_s=answer.tokens_per_s,
        strategy=best.strategy,
        bound_by=f"{widest[0]} ({widest[1] / answer.step_s:.0%})",
    )


def compared(job: Job, a: Side, b: Side, setting_range: tuple[float, float]) -> Comparison:
    """The comparison of two sides; `setting_range` are the factors that bound the speed-up's 80 % range."""
    speedup = b.tokens_per_s / a.tokens_per_s
    low, high = speedup * setting_range[0], speedup * setting_range[1]
    ratio = b.usd_per_gpu_hour * b.rig.n_gpus / (a.usd_per_gpu_hour * a.rig.n_gpus)
    spread = max(math.log(high / low) / (2 * Z_80), 1e-9)
    cheaper = float(allocator.normal_cdf(math.log(speedup / ratio) / spread))
    per_card = a.usd_per_gpu_hour * a.rig.n_gpus / b.rig.n_gpus
    saved = a.hours - b.hours
    more = b.usd - a.usd
    return Comparison(
        job=job,
        a=a,
        b=b,
        speedup=speedup,
        speedup_low=low,
        speedup_high=high,
        price_ratio=ratio,
        usd_a=a.usd,
        usd_b=b.usd,
        probability_b_cheaper=cheaper,
        flip_price_b=per_card * speedup,
        flip_price_b_low=per_card * low,
        flip_price_b_high=per_card * high,
        hours_saved=saved,
        hour_worth=more / saved if more > 0 and saved > 0 else None,
        verdict=verdict(a, b, speedup, ratio, cheaper, saved, more),
    )


def verdict(a: Side, b: Side, speedup: float, ratio: float, cheaper: float, saved: float, more: float) -> str:
    """One sentence, chosen by the numbers: who is cheaper, how sure that is, and what the clock says."""
    rule = f"{b.rig.gpu} is {speedup:.2f}x as fast at {ratio:.2f}x the price"
    wins, loses = (b, a) if more < 0 else (a, b)
    sure = max(cheaper, 1 - cheaper)
    share = abs(more) / max(a.usd, b.usd)
    how = "too close to call" if CLOSE[0] < cheaper < CLOSE[1] else certainty(sure)
    line = f"{rule}: {wins.rig.gpu} costs {share:.0%} less per run than {loses.rig.gpu} ({how})"
    if more > 0 and saved > 0:
        return f"{line}; {b.rig.gpu} saves {saved:.2f} h for ${more:.2f} more"
    return f"{line}, and is {'also faster' if (saved > 0) == (wins is b) else 'slower'}"


def certainty(probability: float) -> str:
    """A probability in words that never says 100 %."""
    return "over 99% sure" if probability > 0.99 else f"{probability:.0%} sure"


def compare(
    job: Job,
    model: Model,
    rig_a: Rig,
    rig_b: Rig,
    price_a: Price,
    price_b: Price,
    fixed: dict[str, Any] | None = None,
    fp8_too: bool = True,
) -> Comparison:
    """The break-even of rig B over rig A on one job, and with FP8 on B where B can.

    Errors of two estimates of one job partly cancel: measured pairs of one recipe on two cards spread about as much
    as one estimate, so the range of the speed-up is the range of B's group. Raises what `side` raises.
    """
    fixed = fixed or {}
    a, b = side(job, model, rig_a, price_a, fixed), side(job, model, rig_b, price_b, fixed)
    age = freshness.said((*price_a.days, *price_b.days))
    found = compared(job, a, b, _range(job, model, b)).model_copy(update={"prices_age": age})
    if not fp8_too or not job.precision.startswith("bf16"):
        return found
    card = gpus.get(rig_b.gpu)
    if not card.fp8_dense_tflops:
        return found.model_copy(update={"fp8_note": f"{card.id} has no FP8"})
    lower = job.model_copy(update={"precision": "fp8"})
    try:
        with_fp8 = side(lower, model, rig_b, price_b, fixed)
    except PerrunError as why:
        return found.model_copy(update={"fp8_note": why.what})
    return found.model_copy(update={"fp8": compared(lower, a, with_fp8, _range(lower, model, with_fp8))})


def _range(job: Job, model: Model, of: Side) -> tuple[float, float]:
    question = estimator.ask(job, of.strategy, of.rig, model)
    low, high = speed.tokens_range(question.setting, question.stack, 1.0)
    return float(low), float(high)
