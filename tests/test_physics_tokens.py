"""Padding and imbalance against measured batches and simulated ones."""

import numpy as np
import pytest

from perrun.physics import tokens


@pytest.mark.parametrize(("rows", "expected"), [(2, 0.5642), (4, 1.0294), (8, 1.4236), (64, 2.3427)])
def test_the_longest_of_n_normal_rows_is_where_tables_put_it(rows: int, expected: float) -> None:
    """Expected normal order statistics: Harter 1961, Biometrika 48, table 1."""
    assert float(tokens.blom(rows)) == pytest.approx(expected, abs=0.05)


def test_one_row_is_padded_to_itself_and_none_beyond_the_longest() -> None:
    assert tokens.padded(300, 2048, 1) == pytest.approx(300)
    assert tokens.padded(300, 2048, 1_000_000) <= 2048
    assert tokens.padded(512, 512, 8) == pytest.approx(512)


def test_padded_batches_are_as_long_as_measured_ones() -> None:
    """OpenOrca rows of 289 tokens were padded to 369, 445 and 524 in batches of 2, 4 and 8 (fms-acceleration)."""
    longest = 289 * np.exp(np.log(445 / 289) / tokens.blom(4) * tokens.blom(1000))  # from the batch of 4 alone
    assert tokens.padded(289, longest, 2) == pytest.approx(369, rel=0.03)
    assert tokens.padded(289, longest, 8) == pytest.approx(524, rel=0.03)


def test_grouping_rows_of_like_length_saves_most_of_the_padding() -> None:
    plain, grouped = tokens.padded(300, 2048, 8), tokens.grouped(300, 2048, 8)
    assert 300 < grouped < 300 + 0.3 * (plain - 300)
    assert tokens.grouped(300, 2048, 1) == pytest.approx(300)


@pytest.mark.parametrize(("rows", "ranks"), [(4, 2), (8, 4), (16, 8)])
def test_the_fullest_rank_is_what_simulated_ranks_say(rows: int, ranks: int) -> None:
    draw = np.random.default_rng(0)
    lengths = draw.lognormal(0.0, 0.6, size=(20_000, ranks, rows)).sum(axis=2)
    simulated = np.mean(lengths.max(axis=1)) / np.mean(lengths)
    assert float(tokens.imbalance(0.6, rows, ranks)) == pytest.approx(simulated, rel=0.05)


def test_one_rank_waits_for_nobody() -> None:
    assert float(tokens.imbalance(0.6, 1, 1)) == 1.0


def test_an_unknown_longest_row_means_the_usual_spread() -> None:
    assert float(tokens.spread_or_usual(300, 300)) == tokens.USUAL_SPREAD
    assert float(tokens.spread_or_usual(300, 2048)) == pytest.approx(np.log(2048 / 300) / tokens.blom(1000))
