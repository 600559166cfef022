"""Which of two: rigs, offers, methods or whole settings on one job, as a difference of cost lines with a verdict.

`compare` answers for two choices, `jobs` and `decisions` for tables of usual jobs, `methods` for one model.
"""

from dataclasses import replace

from perrun import estimator, speed
from perrun.decide.breakeven import certainty, compared, verdict
from perrun.decide.reading import Market, choice
from perrun.decide.sensitivity import flips, said
from perrun.decide.sides import (
    PREDICTED,
    Choice,
    Laid,
    Price,
    changes,
    laid_out,
    market_price,
    offer_price,
    sides,
)
from perrun.errors import PerrunError
from perrun.facts import gpus
from perrun.prices import freshness
from perrun.terms import Comparison, Offer

__all__ = [
    "Choice",
    "Market",
    "Price",
    "certainty",
    "choice",
    "compare",
    "compared",
    "market_price",
    "offer_price",
    "spread",
    "verdict",
]
EXACT = (1.0, 1.0)


def compare(
    a: Choice, b: Choice, offers: list[Offer] | None = None, hour_usd: float = 0.0, more: bool = True
) -> Comparison:
    """The break-even of B over A, what would turn it, and the same with FP8 on B where B can.

    offers: what is known of other prices, to say how far away a flip is; more=False: the break-even alone. Raises what
    `laid_out` raises.
    """
    first = laid_out(a)
    found = _compared(first, laid_out(b), hour_usd)
    differ = {name: pair[1] for name, pair in changes(a, b).items()}
    age = freshness.said((*a.price.days, *b.price.days))
    found = found.model_copy(update={"prices_age": age, "changes": differ})
    if not more:
        return found
    turns = flips(a, b, found, offers or [])
    found = found.model_copy(update={"sensitivity": turns, "flips": said(turns)})
    if not b.job.precision.startswith("bf16") or b.hours is not None:
        return found
    card = gpus.get(b.rig.gpu)
    if not card.fp8_dense_tflops:
        return found.model_copy(update={"fp8_note": f"{card.id} has no FP8"})
    try:
        lower = laid_out(replace(b, job=b.job.model_copy(update={"precision": "fp8"})))
    except PerrunError as why:
        return found.model_copy(update={"fp8_note": why.what})
    return found.model_copy(update={"fp8": _compared(first, lower, hour_usd)})


def _compared(a: Laid, b: Laid, hour_usd: float) -> Comparison:
    """Errors of one prediction cancel where both sides are one job on one rig; hours that were typed in have none."""
    side_a, side_b = sides(a, b)
    typed = side_a.hours_of == side_b.hours_of != PREDICTED
    same = a.choice.rig == b.choice.rig and not changes(a.choice, b.choice)
    return compared(a.choice.job, side_a, side_b, EXACT if typed or same else spread(b), hour_usd)


def spread(of: Laid) -> tuple[float, float]:
    """Factors that bound the 80 % range of a speed-up over another rig or setting.

    Errors of two estimates of one job partly cancel: measured pairs of one recipe on two cards spread about as much as
    one estimate (docs/accuracy.md), so the range is that of the group of B.
    """
    question = estimator.ask(of.choice.job, of.strategy, of.choice.rig, of.choice.model)
    low, high = speed.tokens_range(question.setting, question.stack, 1.0)
    return float(low), float(high)
