"""What a provider bills: plain functions over scalars or arrays, seconds, hours and GPU-hours in and out."""

from functools import cache
from math import gcd
from typing import Any

import numpy as np
import numpy.typing as npt

# AWS capacity blocks are sold in whole days up to two weeks, then in whole weeks up to half a year [h].
# Source: EC2 user guide, Capacity Blocks for ML.
CAPACITY_BLOCK_HOURS = tuple(24.0 * days for days in (*range(1, 15), *range(21, 183, 7)))
NOISE = 1e-6  # steps, or blocks, that count as rounding of the arithmetic


def billed_seconds(seconds: Any, increment: Any, minimum: Any) -> Any:
    """Seconds on the bill: max(minimum, ceil(t / step) x step) [s].

    Source: billing pages of the providers as read in providers.csv (AWS per second with a minimum of 60, Lambda per
    minute, clusters by the week). A step that is met to a millionth is not rounded up.
    """
    steps = np.ceil(np.asarray(seconds, dtype=float) / increment - NOISE)
    return np.maximum(minimum, steps * increment)


@cache
def _reachable(sizes: tuple[int, ...]) -> tuple[int, npt.NDArray[np.float64]]:
    """(common divisor, smallest sum of blocks >= i divisors for each i below the bound where every sum is reached).

    In units of the greatest common divisor every number from (smallest - 1)(largest - 1) on is a sum of the sizes
    (Schur's bound on the coin problem of Frobenius), so only those below need a table.
    """
    unit = gcd(*sizes)
    coins = sorted(size // unit for size in sizes)
    bound = max((coins[0] - 1) * (coins[-1] - 1), 0)
    hit = np.zeros(bound + coins[-1] + 1, dtype=bool)
    hit[0] = True
    for total in range(1, hit.size):
        hit[total] = any(total >= coin and hit[total - coin] for coin in coins)
    sums = np.flatnonzero(hit)
    return unit, sums[np.searchsorted(sums, np.arange(bound + 1))].astype(float)


def prepaid_gpu_hours(gpu_hours: Any, sizes: tuple[int, ...]) -> Any:
    """GPU-hours to buy in blocks of the given sizes, all at one rate: the smallest sum that covers `gpu_hours`."""
    unit, table = _reachable(sizes)
    needed = np.ceil(np.asarray(gpu_hours, dtype=float) / unit - NOISE)
    inside = np.clip(needed, 0, table.size - 1).astype(int)
    return unit * np.where(needed < table.size, table[inside], needed)


def _last_coins(total: int, coins: list[int]) -> list[int]:
    """For each sum up to `total` one coin of a shortest way to it; 0 where there is none."""
    count, last = [0] + [total + 1] * total, [0] * (total + 1)
    for amount in range(1, total + 1):
        for coin in coins:
            if coin <= amount and count[amount - coin] + 1 <= count[amount] <= total + 1:
                count[amount], last[amount] = count[amount - coin] + 1, coin
    return last


def blocks_to_buy(gpu_hours: float, sizes: tuple[int, ...]) -> dict[int, int]:
    """How many blocks of each size cover `gpu_hours` with the least left over, in the fewest purchases.

    Far above the largest size only largest blocks are taken, so that the table stays small.
    """
    unit = gcd(*sizes)
    coins = sorted(size // unit for size in sizes)
    total = round(float(prepaid_gpu_hours(gpu_hours, sizes)) / unit)
    largest = coins[-1]
    spared = max(0, total // largest - largest)
    rest = total - spared * largest
    last = _last_coins(rest, coins)
    bought = {largest * unit: spared} if spared else {}
    while rest:
        bought[last[rest] * unit] = bought.get(last[rest] * unit, 0) + 1
        rest -= last[rest]
    return dict(sorted(bought.items()))


def reserved_hours(hours: Any, lengths: tuple[float, ...]) -> Any:
    """Hours of the shortest reservation that holds the run; nan where the longest is too short."""
    ladder = np.array([*sorted(lengths), np.nan])
    return ladder[np.searchsorted(ladder[:-1], np.asarray(hours, dtype=float) * (1 - 1e-9))]
