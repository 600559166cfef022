"""The market in figures: quartiles per card and term, how they moved, and claims such as "30 % below the median"."""

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from typing import Any

import numpy as np

from perrun.errors import InvalidInput, UnknownName
from perrun.prices.quote import Quote

STATISTICS = ("minimum", "lower quartile", "median", "upper quartile", "maximum")


@dataclass(frozen=True, slots=True)
class Market:
    """Prices per GPU-hour [USD] of one card and term over n offers of some providers, each at its newest."""

    gpu: str
    term: str
    n: int
    providers: int
    minimum: float
    lower_quartile: float
    median: float
    upper_quartile: float
    maximum: float
    oldest: date
    newest: date
    change: float | None = None  # of the median since the earlier market, as a share; None: nothing was seen since

    def value(self, statistic: str) -> float:
        return float(getattr(self, statistic.replace(" ", "_")))


def columns_of(quotes: Iterable[Quote]) -> dict[str, list[Any]]:
    """Quotes as the columns that `markets` takes."""
    names = ("provider", "gpu", "n_gpus", "term", "usd_per_hour", "observed_at")
    found: dict[str, list[Any]] = {name: [] for name in names}
    for quote in quotes:
        for name in names:
            found[name].append(getattr(quote, name))
    return found


def markets(columns: dict[str, list[Any]], before: dict[str, list[Any]] | None = None) -> list[Market]:
    """One Market per card and term, by card. before: an earlier day's columns, for the change of the median.

    Quartiles interpolate linearly between offers (Hyndman and Fan, type 7).
    """
    earlier = {(m.gpu, m.term): m for m in markets(before)} if before else {}
    groups: dict[tuple[str, str], list[int]] = defaultdict(list)
    for row, key in enumerate(zip(columns["gpu"], columns["term"], strict=True)):
        groups[key].append(row)
    each = np.array(columns["usd_per_hour"], dtype=float) / np.array(columns["n_gpus"], dtype=float)
    found: list[Market] = []
    for (gpu, term), rows in sorted(groups.items()):
        low, q1, middle, q3, high = (float(value) for value in np.percentile(each[rows], [0, 25, 50, 75, 100]))
        days = [columns["observed_at"][row] for row in rows]
        was = earlier.get((gpu, term))
        found.append(
            Market(
                gpu,
                term,
                len(rows),
                len({columns["provider"][row] for row in rows}),
                low,
                q1,
                middle,
                q3,
                high,
                min(days),
                max(days),
                middle / was.median - 1.0 if was is not None and max(days) > was.newest else None,
            )
        )
    return found


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim that a provider's prices lie some share below (or above) a figure of the market."""

    provider: str
    share: float
    above: bool
    statistic: str

    @staticmethod
    def parse(text: str) -> "Claim":
        """From 'PROVIDER: at least 30 % below the median'. Raises InvalidInput."""
        wanted = "|".join(STATISTICS)
        pattern = (
            r"(.+?):\s*(?:at least\s+|>=\s*|≥\s*)?([\d.]+)\s*%\s*(below|under|above|over)\s+"
            rf"(?:the\s+)?(?:market\s+)?({wanted})"
        )
        match = re.fullmatch(pattern, text.strip(), re.IGNORECASE)
        if match is None:
            raise InvalidInput(
                f"claim {text!r} is not understood",
                expected='"PROVIDER: at least N % below the median" (or above; minimum, lower quartile, ...)',
            )
        provider, share, side, statistic = match.groups()
        return Claim(provider.strip(), float(share) / 100, side.lower() in ("above", "over"), statistic.lower())


@dataclass(frozen=True, slots=True)
class Tested:
    """A claim against one card's market: does it hold, and by how much (share below the figure less that claimed)."""

    gpu: str
    term: str
    usd_per_gpu_hour: float
    reference: float
    n: int
    below: float
    holds: bool
    margin: float


def check_claim(claim: Claim, quotes: Iterable[Quote]) -> list[Tested]:
    """The claim for every card and term that the provider sells and others sell too.

    The claimant's own offers are no part of the market that it is compared with; of its sizes the cheapest per GPU
    counts. Raises UnknownName for a provider without offers, InvalidInput when nobody else sells its cards.
    """
    found = list(quotes)
    own: dict[tuple[str, str], float] = {}
    for quote in found:
        if quote.provider == claim.provider:
            key = (quote.gpu, quote.term)
            own[key] = min(own.get(key, float("inf")), quote.usd_per_gpu_hour)
    if not own:
        names = ", ".join(sorted({quote.provider for quote in found}))
        raise UnknownName(f"no offers of {claim.provider!r}", expected=names)
    others = markets(columns_of(quote for quote in found if quote.provider != claim.provider))
    tested: list[Tested] = []
    for market in others:
        usd = own.get((market.gpu, market.term))
        if usd is None:
            continue
        reference = market.value(claim.statistic)
        below = 1.0 - usd / reference
        margin = (-below if claim.above else below) - claim.share
        tested.append(Tested(market.gpu, market.term, usd, reference, market.n, below, margin >= -1e-12, margin))
    if not tested:
        raise InvalidInput(f"nobody else sells the cards of {claim.provider} on the same terms")
    return tested
