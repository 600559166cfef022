"""Whether the predicted speed-up gives the right advice: B is cheaper if it is faster by more than its price says.

The prices are those of the seed pages that print an hour of both cards (rules/*.csv), so the advice is the one that
their readers ask for.
"""

from collections.abc import Iterable
from typing import Any

from pydantic import Field

from perrun import rules
from perrun.facts import gpus
from perrun.terms import Noun
from perrun.validation.scores import Point


class BreakEven(Noun):
    """Verdicts at the prices of the seed pages."""

    n: int = Field(description="verdicts: one for each comparable pair and page that prices both cards")
    right: float = Field(description="share that the predicted and the measured speed-up agree on")


def prices() -> dict[str, dict[str, float]]:
    """page -> card id -> dollars per GPU-hour; a page's 'A100-80GB' prices every card that the name may mean."""
    named: dict[str, dict[str, float]] = {}
    for row in rules.data("jobs"):
        named.setdefault(row["source"], {}).update(
            {row["gpu_a"]: float(row["usd_per_hour_a"]), row["gpu_b"]: float(row["usd_per_hour_b"])}
        )
    for row in rules.data("cards"):
        named.setdefault(row["source"], {})[row["gpu"]] = float(row["usd_per_gpu_hour"])
    for row in rules.data("rigs"):
        if row["n_gpus"] == "1":
            named.setdefault(row["source"], {})[row["gpu"]] = float(row["usd_per_hour"])
    return {
        page: {gpu.id: usd for name, usd in cards.items() for gpu in gpus.candidates(name)}
        for page, cards in named.items()
    }


def score(points: Iterable[tuple[dict[str, Any], Point]]) -> BreakEven | None:
    """points: the columns of comparable pairs of two cards, with predicted and measured speed-up. None without any."""
    pages = prices()
    right = [
        (point.predicted > ratio) == (point.measured > ratio)
        for columns, point in points
        for cards in pages.values()
        if columns["gpu_a"] != columns["gpu_b"] and columns["gpu_a"] in cards and columns["gpu_b"] in cards
        for ratio in (cards[columns["gpu_b"]] / cards[columns["gpu_a"]],)
    ]
    return BreakEven(n=len(right), right=sum(right) / len(right)) if right else None
