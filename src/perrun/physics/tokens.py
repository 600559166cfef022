"""Tokens as the GPU sees them, with padding, and as users count them, without.

The lengths of rows are taken as lognormal: of all rows of a data set the mean and the longest are known, and the
spread follows from them. The longest of b rows is placed at its median order statistic (Blom 1958: the normal quantile
at (b - 3/8) / (b + 1/4)), scaled so that one row alone is the mean row.
"""

from typing import Any

import numpy as np

# Batches that Hugging Face's LengthGroupedSampler sorts at a time (transformers trainer_pt_utils.py).
MEGA_BATCH = 50
# Rows behind "the longest" when nobody says how many there are: z of the longest of 1000 is 3.24.
ROWS = 1000
# Standard deviation of log length in instruction data: OpenOrca and Alpaca rows padded to the longest of 2, 4 and 8
# are 1.28, 1.54 and 1.81 times the mean row (fms-acceleration-benchmarks), which a lognormal gives at 0.42 by Blom's z;
# the tail beyond is heavier, and sums over a batch see it.
USUAL_SPREAD = 0.6


def normal_quantile(p: Any) -> Any:
    """Quantile of the standard normal distribution, to 4.5e-4 (Abramowitz and Stegun 26.2.23)."""
    tail = np.minimum(p, 1.0 - np.asarray(p, dtype=float))
    t = np.sqrt(-2.0 * np.log(tail))
    z = t - (2.515517 + 0.802853 * t + 0.010328 * t**2) / (1 + 1.432788 * t + 0.189269 * t**2 + 0.001308 * t**3)
    return np.where(np.asarray(p) < 0.5, -z, z)


def blom(rows: Any) -> Any:
    """z of the longest of `rows` rows; 0 for one row."""
    n = np.asarray(rows, dtype=float)
    return np.where(n > 1, normal_quantile((n - 0.375) / (n + 0.25)), 0.0)


def spread(mean: Any, longest: Any, rows: Any = ROWS) -> Any:
    """Standard deviation of log length such that the longest of `rows` rows is `longest`."""
    return np.log(np.maximum(np.asarray(longest, dtype=float) / mean, 1.0)) / np.maximum(blom(rows), 1e-9)


def padded(mean: Any, longest: Any, micro_batch: Any, rows: Any = ROWS) -> Any:
    """Expected length to which the rows of a micro batch are padded: the longest of them, at most `longest`."""
    longer = np.asarray(mean, dtype=float) * np.exp(spread(mean, longest, rows) * blom(micro_batch))
    return np.minimum(np.asarray(longer, dtype=float), np.asarray(longest, dtype=float))


def grouped(mean: Any, longest: Any, micro_batch: Any, rows: Any = ROWS) -> Any:
    """The same when rows of like length are batched together.

    The sampler sorts 50 micro batches at a time, so one spans a fiftieth of the spread of lengths among them.
    """
    widest = padded(mean, longest, np.asarray(micro_batch) * MEGA_BATCH, rows)
    one = np.asarray(mean, dtype=float)
    spanned = one + (np.asarray(widest, dtype=float) - one) / MEGA_BATCH
    return np.where(np.asarray(micro_batch, dtype=float) > 1, spanned, one)


def spread_or_usual(mean: Any, longest: Any) -> Any:
    """`spread`, or the usual one of instruction data where the longest row is not known (given as the mean)."""
    known = np.asarray(longest, dtype=float) > np.asarray(mean, dtype=float)
    return np.where(known, spread(mean, longest), USUAL_SPREAD)


def imbalance(log_spread: Any, rows: Any, ranks: Any) -> Any:
    """Tokens of the fullest of `ranks` ranks over those of the mean one, each holding `rows` rows: 1 + cv z / sqrt(b).

    cv = sqrt(exp(s^2) - 1) of a lognormal length; the sum over b rows varies by cv / sqrt(b), and the fullest of n
    ranks lies z standard deviations above the mean (Blom).
    """
    variation = np.sqrt(np.expm1(np.asarray(log_spread, dtype=float) ** 2))
    return 1.0 + variation * blom(ranks) / np.sqrt(rows)
