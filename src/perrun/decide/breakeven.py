"""The break-even of two sides: a difference of bills, its margin, its probability, and a sentence chosen by them."""

import math

from perrun.physics import allocator
from perrun.planner.words import short
from perrun.terms import Comparison, CostLine, Job, Side

Z_80 = 1.2816  # standard deviations that hold 80 % of a normal distribution
CLOSE = (0.2, 0.8)  # between these probabilities the verdict is said to be open
NARROWEST = 1e-9  # of a range, so that hours that were typed in for both sides divide by no zero
SAME = 1e-9  # relative difference below which two bills are the same
TYPED = "typed in"


def rate(side: Side) -> float:
    """Dollars per hour of all that is rented."""
    return side.usd_per_gpu_hour * side.rig.n_gpus


def clock(side: Side) -> float:
    """Hours that are billed: training, start-up, idle GPUs, ..."""
    return sum(line.quantity for line in side.cost_lines if line.unit == "h") if side.cost_lines else side.hours


def beside(side: Side) -> float:
    """Dollars of a bill that are no training: start-up, checkpoints, disk, traffic."""
    return side.usd - rate(side) * side.hours


def apart(side: Side) -> float:
    """Dollars of a bill that no clock counts: disk and traffic."""
    return sum(line.usd for line in side.cost_lines if line.unit != "h")


def break_even_speedup(a: Side, b: Side) -> float | None:
    """The speed-up of B over A at which both bills are the same; the price ratio where nothing but training is billed.

    None: what B bills beside its training is more than A's whole bill.
    """
    left = a.usd - beside(b)
    return a.hours * rate(b) / left if left > 0 else None


def flip_price(a: Side, b: Side, speedup: float) -> float:
    """Dollars per GPU-hour of B at which both bills are the same, if B were `speedup` times as fast as A; 0 for none.

    Billing steps are taken as they fall at the hours of the bill.
    """
    hours = clock(b) - b.hours + a.hours / speedup
    return max(a.usd - apart(b), 0.0) / (hours * b.rig.n_gpus)


def less(a: list[CostLine], b: list[CostLine]) -> list[CostLine]:
    """B less A, line by line: a difference of bills is a bill."""
    signed = {line.name: line for line in b}
    for line in a:
        other = signed.get(line.name, line.model_copy(update={"quantity": 0.0, "usd": 0.0}))
        gone = {"quantity": other.quantity - line.quantity, "usd": other.usd - line.usd}
        signed[line.name] = other.model_copy(update=gone)
    return list(signed.values())


def compared(job: Job, a: Side, b: Side, factors: tuple[float, float], hour_usd: float = 0.0) -> Comparison:
    """The comparison of two sides. factors: of the speed-up, that bound its 80 % range."""
    speedup = a.hours / b.hours
    low, high = speedup * factors[0], speedup * factors[1]
    even = break_even_speedup(a, b)
    saved, more = a.hours - b.hours, b.usd - a.usd
    cheaper = probability(speedup, even, low, high)
    return Comparison(
        job=job,
        a=a,
        b=b,
        speedup=speedup,
        speedup_low=low,
        speedup_high=high,
        price_ratio=rate(b) / rate(a),
        break_even_speedup=even,
        usd_a=a.usd,
        usd_b=b.usd,
        difference=less(a.cost_lines, b.cost_lines),
        probability_b_cheaper=cheaper,
        flip_price_b=flip_price(a, b, speedup),
        flip_price_b_low=flip_price(a, b, low),
        flip_price_b_high=flip_price(a, b, high),
        hours_saved=saved,
        hour_worth=more / saved if more * saved > 0 else None,
        hour_usd=hour_usd,
        verdict=verdict(a, b, cheaper, hour_usd),
    )


def probability(speedup: float, even: float | None, low: float, high: float) -> float:
    """That the speed-up is above the break-even: log-normal, `low` to `high` hold 80 %."""
    if even is None:
        return 0.0
    spread = max(math.log(high / low) / (2 * Z_80), NARROWEST)
    return min(max(float(allocator.normal_cdf(math.log(speedup / even) / spread)), 0.0), 1.0)


def verdict(a: Side, b: Side, cheaper: float, hour_usd: float = 0.0) -> str:
    """One sentence, chosen by the numbers: who is cheaper, how sure that is, and what the clock says.

    cheaper: probability that B is.
    """
    rule = f"{name(b)} is {a.hours / b.hours:.2f}x as fast at {rate(b) / rate(a):.2f}x the price"
    if math.isclose(a.usd, b.usd, rel_tol=SAME):
        return f"{rule}: both cost the same per run{_typed(a, b)}"
    wins, loses = (b, a) if b.usd < a.usd else (a, b)
    how = "too close to call" if CLOSE[0] < cheaper < CLOSE[1] else certainty(max(cheaper, 1 - cheaper))
    line = f"{rule}: {name(wins)} costs {_percent(1 - wins.usd / loses.usd)} less per run than {name(loses)}"
    return f"{line} ({how}){_typed(a, b)}{_waiting(wins, loses, hour_usd)}"


def _percent(share: float) -> str:
    return "under 1%" if share < 0.005 else f"{share:.0%}"


def _waiting(wins: Side, loses: Side, hour_usd: float) -> str:
    """What the clock says of the cheaper one, and where an hour is worth something, what that makes of it."""
    saved, more = wins.hours - loses.hours, loses.usd - wins.usd
    if saved <= 0:
        return ", and is also faster" if saved < 0 else ", and takes as long"
    line = f"; {name(loses)} saves {short(saved)} h for ${short(more)} more"
    if not hour_usd:
        return line
    gain = hour_usd * saved - more
    worth = "worth it" if gain > 0 else "not worth it"
    return f"{line}, {worth} at ${short(hour_usd)} an hour of waiting (${short(abs(gain))} in all)"


def _typed(a: Side, b: Side) -> str:
    """Says so when hours were typed in and not predicted."""
    found = [name(side) for side in (a, b) if side.hours_of == TYPED]
    return f" [hours of {' and '.join(found)} typed in, not predicted]" if found else ""


def name(side: Side) -> str:
    """What a side is called in a sentence."""
    return side.name or side.rig.gpu


def certainty(probability: float) -> str:
    """A probability in words that never says 100 %."""
    return "over 99% sure" if probability > 0.99 else f"{probability:.0%} sure"
