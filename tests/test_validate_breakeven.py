"""The advice that follows from a speed-up, at the prices of the seed pages."""

from pathlib import Path

import pytest

from perrun import validation
from perrun.validation import breakeven
from perrun.validation.scores import Point

A, B = "A100-SXM4-80GB", "H100-SXM-80GB"


def point(predicted: float, measured: float) -> Point:
    return Point("paper", "lora", f"{A} to {B}", "trl", "comparable", predicted, measured, 1.0, 9.0)


def test_prices_are_those_that_the_pages_print() -> None:
    found = sorted(cards[B] / cards[A] for cards in breakeven.prices().values() if {A, B} <= set(cards))
    assert found == pytest.approx([2.69 / 1.59, 2.32 / 0.92, 1.680 / 0.468])


def test_advice_is_right_where_both_speedups_lie_on_one_side_of_the_price_ratio() -> None:
    # ratios 1.69, 2.52 and 3.59: 2.0 against 2.3 agree on all three, 2.4 against 2.6 not on the second
    columns = {"gpu_a": A, "gpu_b": B}
    found = breakeven.score([(columns, point(2.0, 2.3)), (columns, point(2.4, 2.6))])
    assert found is not None
    assert (found.n, found.right) == (6, pytest.approx(5 / 6))


def test_cards_without_a_price_and_one_card_in_two_precisions_give_no_verdict() -> None:
    assert breakeven.score([({"gpu_a": A, "gpu_b": "B300-288GB"}, point(2, 2))]) is None
    assert breakeven.score([({"gpu_a": B, "gpu_b": B}, point(2, 2))]) is None


def test_shipped_pairs_give_the_right_advice() -> None:
    found = validation.pairs(Path(__file__).parents[1] / "runs" / "speedup_pairs.csv")
    assert found.break_even is not None
    assert found.break_even.n >= 100
    assert found.break_even.right >= 0.95
    assert not found.broken
