"""Interruptions of a Poisson process: how often to save, what lost work costs, and when on-demand is cheaper.

Symbols: work T, hazard lambda per hour, interval tau of work between checkpoints, checkpoint C and restart R, all in
hours. Plain functions over scalars or arrays.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

LARGEST_EXPONENT = 600.0  # e^600 is still a float; a run that hopeless costs "more than can be said"
LEAST_HOURS = 1e-9


def _above_zero(hazard: Any) -> npt.NDArray[np.float64]:
    return np.maximum(np.asarray(hazard, dtype=float), 1e-300)


def hazard_of_monthly_share(share: Any, hours: float = 730.0) -> Any:
    """Interruptions per hour if `share` of the machines are interrupted at least once in `hours`: -ln(1 - p) / hours.

    Source: exponential survival; the share is what the AWS spot advisor publishes as a class, over machines whose
    lifetime it does not publish (interruption_classes.csv spans that ignorance).
    """
    return -np.log1p(-np.asarray(share, dtype=float)) / hours


def young_interval(checkpoint: Any, hazard: Any) -> Any:
    """Hours of work between checkpoints that cost least, to first order: sqrt(2 C / lambda).

    Source: J. W. Young, A first order approximation to the optimum checkpoint interval, CACM 17(9), 1974.
    """
    return np.sqrt(2.0 * np.asarray(checkpoint, dtype=float) / _above_zero(hazard))


def daly_interval(checkpoint: Any, hazard: Any) -> Any:
    """The same to higher order: sqrt(2 C M) (1 + sqrt(C / 2M) / 3 + (C / 2M) / 9) - C, and M where C >= 2 M.

    Source: J. T. Daly, A higher order estimate of the optimum checkpoint interval for restart dumps, FGCS 22(3),
    2006, equation 37; M = 1 / lambda.
    """
    checkpoint = np.asarray(checkpoint, dtype=float)
    mean = 1.0 / _above_zero(hazard)
    half = checkpoint / (2.0 * mean)
    refined = young_interval(checkpoint, hazard) * (1.0 + np.sqrt(half) / 3.0 + half / 9.0) - checkpoint
    return np.where(half < 1.0, refined, mean)


def segments(work: Any, interval: Any) -> Any:
    """Equal stretches of work, each ended by a checkpoint: the whole number nearest to the interval wished for."""
    wished = np.maximum(np.asarray(interval, dtype=float), LEAST_HOURS)
    return np.maximum(np.rint(np.asarray(work, dtype=float) / wished), 1.0)


def expected_hours(work: Any, hazard: Any, interval: Any, checkpoint: Any, restart: Any) -> Any:
    """Hours until `work` hours are done, in expectation: n (e^(lambda (tau + C)) - 1) e^(lambda R) / lambda.

    A stretch counts only when it and its checkpoint end without an interruption; a restart may be interrupted too.
    Source: Daly 2006, equation 20, for n = T / tau whole stretches. With lambda = 0 it is T + n C.
    """
    n = segments(work, interval)
    hazard = np.asarray(hazard, dtype=float)
    stretch = np.asarray(work, dtype=float) / n + np.asarray(checkpoint, dtype=float)
    safe = np.maximum(hazard, 1e-12)
    power = np.minimum(safe * stretch, LARGEST_EXPONENT)
    again = np.minimum(safe * restart, LARGEST_EXPONENT - power)
    risky: npt.NDArray[np.float64] = np.expm1(power) * np.exp(again) / safe
    return n * np.where(hazard > 1e-12, risky, stretch)


def expected_interruptions(work: Any, hazard: Any, interval: Any, checkpoint: Any, restart: Any) -> Any:
    """Interruptions until the work is done: hazard times the hours that the machine runs in expectation."""
    return hazard * expected_hours(work, hazard, interval, checkpoint, restart)


def simulated_hours(
    work: float, hazard: float, interval: float, checkpoint: float, restart: float, runs: int = 10_000, seed: int = 0
) -> npt.NDArray[np.float64]:
    """Hours of `runs` simulated runs, one value each: their mean is `expected_hours`, their spread is the risk."""
    draw = np.random.default_rng(seed)
    left = np.full(runs, segments(work, interval))
    stretch = work / left[0] + checkpoint
    need = np.full(runs, stretch)
    hours = np.zeros(runs)
    going = np.arange(runs)
    while going.size:
        until = draw.exponential(1.0 / hazard, going.size) if hazard > 0 else np.full(going.size, np.inf)
        done = until >= need[going]
        hours[going] += np.where(done, need[going], until)
        left[going] -= done
        need[going] = stretch + np.where(done, 0.0, restart)
        going = going[left[going] > 0]
    return hours


def break_even_hazard(price_ratio: Any, work: Any, checkpoint: Any, restart: Any) -> Any:
    """Interruptions per hour above which on-demand is cheaper in expectation [1/h].

    price_ratio: interruptible over on-demand price. Bisection on the cost of the interruptible run at its best
    interval against work x on-demand price. 0 where the discount does not even pay for saving once.
    """
    ratio, work, checkpoint, restart = np.broadcast_arrays(price_ratio, work, checkpoint, restart)
    low, high = np.full(ratio.shape, 1e-9), np.full(ratio.shape, 1e3)
    for _ in range(45):  # halves 28 nats to a relative 1e-12
        middle = np.sqrt(low * high)
        interval = np.minimum(daly_interval(checkpoint, middle), work)
        dearer = ratio * expected_hours(work, middle, interval, checkpoint, restart) > work
        low, high = np.where(dearer, low, middle), np.where(dearer, middle, high)
    return np.where(low <= 1e-9, 0.0, low)
