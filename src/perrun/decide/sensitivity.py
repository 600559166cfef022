"""What would turn a verdict: a price, the speed-up, the length of rows, the epochs, an hour of waiting; or nothing."""

import math

from perrun import search
from perrun.decide.breakeven import SAME, beside, flip_price, name, rate
from perrun.decide.sides import PREDICTED, Choice
from perrun.estimator import MIN_FIT
from perrun.planner.words import short
from perrun.terms import Comparison, Flip, Job, Offer, Side
from perrun.units import SECONDS_PER_HOUR

LENGTHS = 4  # doublings and halvings of the rows that are tried
SHORTEST = 128  # rows [tokens]
EPOCHS = (0.1, 10.0)  # a run is not imagined shorter or longer than by these factors
PRICES = (0.5, 2.0)  # nor a price, where no offer of the card is known
WAITING_USD = 100.0  # an hour of waiting that nobody says is worth more: that of an engineer, with overheads


def flips(a: Choice, b: Choice, found: Comparison, offers: list[Offer]) -> list[Flip]:
    """Each thing that may turn the verdict, with the value from which it does, if there is one."""
    predicted = found.a.hours_of == found.b.hours_of == PREDICTED
    every = [
        _price(found, a, found.a, offers, flip_price(found.b, found.a, 1 / found.speedup)),
        _price(found, b, found.b, offers, found.flip_price_b),
        _speedup(found),
        _length(a, b, found) if predicted else None,
        _epochs(found),
        _waiting(found),
    ]
    return [one for one in every if one is not None]


def said(found: list[Flip]) -> str:
    """All of it in one line."""
    likely = [one.said for one in found if one.in_reason]
    return f"It flips with: {'; '.join(likely)}" if likely else "Nothing in reason flips it"


def _b_wins(found: Comparison) -> bool:
    return found.usd_b < found.usd_a


def _price(found: Comparison, choice: Choice, side: Side, offers: list[Offer], at: float) -> Flip | None:
    """A price of one side; in reason where somebody asks it for the card, in any way that it is sold."""
    now = side.usd_per_gpu_hour
    if found.a.rig.gpu == found.b.rig.gpu and not choice.price.offer:
        return None  # the price of one card is that of both
    cheaper = at < now
    asked = [offer.usd_per_hour / offer.rig.n_gpus for offer in offers if offer.rig.gpu == side.rig.gpu]
    there = [usd for usd in asked if (usd <= at if cheaper else usd >= at)]
    in_reason = bool(there) if asked else PRICES[0] <= at / now <= PRICES[1]
    little = "little" if cheaper else "much"
    on_offer = f" ({len(there) or 'none'} of {len(asked)} offers ask so {little})" if asked else ""
    return Flip(
        what=f"price of {name(side)}",
        now=now,
        at=at or None,
        unit="USD per GPU-hour",
        in_reason=in_reason and at > 0,
        said=f"{name(side)} at ${at:.3f} per GPU-hour or {'less' if cheaper else 'more'}{on_offer}",
    )


def _speedup(found: Comparison) -> Flip:
    """The speed-up itself; in reason within its 80 % range."""
    even = found.break_even_speedup
    within = even is not None and found.speedup_low <= even <= found.speedup_high
    return Flip(
        what="speed-up",
        now=found.speedup,
        at=even,
        unit="x",
        in_reason=within,
        said=f"a speed-up of {even:.2f}x" if even is not None else "no speed-up",
    )


def _length(a: Choice, b: Choice, found: Comparison) -> Flip | None:
    """Other lengths of rows over as many tokens: the nearest at which the other side wins, or one drops out."""
    now = a.job.seq_len
    most = min(one.model.max_position_embeddings or math.inf for one in (a, b))
    for length in [round(now * 2.0**k) for n in range(1, LENGTHS + 1) for k in (n, -n)]:
        if not SHORTEST <= length <= most:
            continue
        speeds = [_speed(one, length) for one in (a, b)]
        if None in speeds:
            lost = [name(side) for side, speed in zip((found.a, found.b), speeds, strict=True) if speed is None]
            if len(lost) == 1:
                return _rows(now, length, f"{lost[0]} no longer holds it")
            continue
        usd = [_usd(side, one, speed) for side, one, speed in zip((found.a, found.b), (a, b), speeds, strict=True)]
        if (usd[1] < usd[0]) != _b_wins(found) and not math.isclose(usd[0], usd[1], rel_tol=SAME):
            return _rows(now, length, f"{name(found.a if _b_wins(found) else found.b)} is cheaper")
    return Flip(what="length of rows", now=now, at=None, unit="tokens", in_reason=False, said="no length of rows")


def _rows(now: int, length: int, why: str) -> Flip:
    said = f"rows of {length:,} tokens ({why})"
    return Flip(what="length of rows", now=now, at=length, unit="tokens", in_reason=True, said=said)


def _speed(one: Choice, length: int) -> float | None:
    """Tokens per second with rows of one length; None where they do not fit."""
    change = {"seq_len": length, "tokens_per_example": length, "longest_example": None}
    job: Job = one.job.model_copy(update=change)
    found, _ = search.best(job, one.model, [one.rig], one.fixed, MIN_FIT)
    return found[0].tokens_per_s if found and found[0].strategy is not None else None


def _usd(side: Side, one: Choice, speed: float | None) -> float:
    """The bill if the training ran at another speed."""
    return rate(side) * one.job.tokens / (speed or math.nan) / SECONDS_PER_HOUR + beside(side)


def _epochs(found: Comparison) -> Flip | None:
    """A longer or shorter run: training grows with it, start-up does not. None where nothing but training is billed."""
    extra = beside(found.a) - beside(found.b)
    grows = rate(found.b) * found.b.hours - rate(found.a) * found.a.hours
    if not found.a.cost_lines or math.isclose(extra, 0.0, abs_tol=SAME * found.usd_a) or not grows:
        return None
    now, factor = found.job.epochs, extra / grows
    if factor <= 0:
        return Flip(what="epochs", now=now, at=None, in_reason=False, said="no number of epochs")
    in_reason = EPOCHS[0] <= factor <= EPOCHS[1]
    said = f"{'more' if factor > 1 else 'fewer'} than {now * factor:.3g} epochs of this data"
    return Flip(what="epochs", now=now, at=now * factor, in_reason=in_reason, said=said)


def _waiting(found: Comparison) -> Flip | None:
    """What an hour must be worth for the dearer and faster side. None where the cheaper is also the faster."""
    if found.hour_worth is None:
        return None
    fast = found.b if found.hours_saved > 0 else found.a
    return Flip(
        what="an hour of waiting",
        now=found.hour_usd,
        at=found.hour_worth,
        unit="USD",
        in_reason=found.hour_worth <= WAITING_USD,
        said=f"an hour of waiting worth ${short(found.hour_worth)} ({name(fast)} is the faster)",
    )
