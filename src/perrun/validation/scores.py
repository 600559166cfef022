"""How far predictions are from what was measured: errors, bias, coverage by group, and the budgets to keep."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from pydantic import Field

from perrun.facts import tables
from perrun.terms import Noun

# An outcome is called between these probabilities of fitting; in between the answer is "may fit".
FITS = 0.9
FITS_NOT = 0.1
EACH_SOURCE = "each source"
COUNTS = {"oom_warned": "oom", "ok_allowed": "ok", "may": "ok"}  # what an outcome's share is of
SOURCE = "source "


@dataclass(frozen=True, slots=True)
class Point:
    """One figure of one run, predicted and measured in the same unit, with the range that was predicted for it."""

    source: str
    method: str
    gpu: str
    framework: str
    kind: str
    predicted: float
    measured: float
    low: float
    high: float

    @property
    def error(self) -> float:
        """|predicted / measured - 1|."""
        return abs(self.predicted / self.measured - 1)

    @property
    def covered(self) -> bool:
        return self.low <= self.measured <= self.high


class Score(Noun):
    """Errors of one group of figures; shares, not percent."""

    n: int
    median: float = Field(description="median of |predicted / measured - 1|")
    p90: float = Field(description="90th percentile of the same")
    bias: float = Field(description="median of predicted / measured - 1")
    coverage: float = Field(description="share of measured values inside the predicted range")


class Outcomes(Noun):
    """Whether runs were predicted to fit, against whether they did."""

    oom: int = Field(description="runs that ended out of memory")
    oom_warned: float | None = Field(description="share of them predicted not to fit or to perhaps not fit")
    ok: int = Field(description="runs that went through")
    ok_allowed: float | None = Field(description="share of them predicted to fit or to perhaps fit")
    may: float | None = Field(description="share of all that was called 'may fit'")


class Broken(Noun):
    """A budget that the scores do not keep."""

    figure: str
    group: str
    statistic: str
    value: float
    low: float | None = None
    high: float | None = None


def score(points: Iterable[Point]) -> Score | None:
    """The score of some figures; None when there are none."""
    found = list(points)
    if not found:
        return None
    errors = np.array([point.error for point in found])
    ratios = np.array([point.predicted / point.measured for point in found])
    return Score(
        n=len(found),
        median=float(np.median(errors)),
        p90=float(np.quantile(errors, 0.9)),
        bias=float(np.median(ratios)) - 1,
        coverage=float(np.mean([point.covered for point in found])),
    )


def by(points: Iterable[Point], key: Callable[[Point], str]) -> dict[str, Score]:
    """Scores by group, groups in alphabetical order."""
    groups: dict[str, list[Point]] = {}
    for point in points:
        groups.setdefault(key(point) or "not stated", []).append(point)
    found = {name: score(groups[name]) for name in sorted(groups)}
    return {name: one for name, one in found.items() if one is not None}


def outcomes(pairs: Iterable[tuple[float, str]]) -> Outcomes:
    """Outcomes from (predicted probability of fitting, 'ok' or 'oom')."""
    found = list(pairs)
    oom = [fits for fits, outcome in found if outcome == "oom"]
    ok = [fits for fits, outcome in found if outcome == "ok"]
    may = [FITS_NOT < fits < FITS for fits, _ in found]
    return Outcomes(
        oom=len(oom),
        oom_warned=float(np.mean([fits < FITS for fits in oom])) if oom else None,
        ok=len(ok),
        ok_allowed=float(np.mean([fits > FITS_NOT for fits in ok])) if ok else None,
        may=float(np.mean(may)) if may else None,
    )


def broken(figure: str, scores: Mapping[str, Noun | None]) -> list[Broken]:
    """Budgets of `figure` (budgets.csv) that the scores by group do not keep; groups without enough runs are left.

    A budget for the group EACH_SOURCE holds for the scores of every publication, whose groups begin with SOURCE.
    """
    found: list[Broken] = []
    for row in tables.read("budgets"):
        if row["figure"] != figure:
            continue
        each = [name for name in scores if name.startswith(SOURCE)] if row["group"] == EACH_SOURCE else [row["group"]]
        found += [kept for name in each if (kept := _kept(row, name, scores.get(name))) is not None]
    return found


def _kept(row: dict[str, str], group: str, one: Noun | None) -> Broken | None:
    """What breaks one budget; None when it is kept or there are too few runs to say."""
    if one is None:
        return None
    statistic = row["statistic"]
    value = getattr(one, statistic)
    n = getattr(one, COUNTS.get(statistic, "n"))
    low, high = tables.number(row["low"]), tables.number(row["high"])
    if value is None or n < int(row["min_n"]):
        return None
    if (low is None or value >= low) and (high is None or value <= high):
        return None
    return Broken(figure=row["figure"], group=group, statistic=statistic, value=value, low=low, high=high)
