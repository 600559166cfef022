"""Interruptions: published formulas worked by hand, closed form against simulation, and the break-even."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perrun.physics import spot


def test_young_interval():
    # C = 36 s, one interruption in 50 h: sqrt(2 x 0.01 x 50) = 1 h
    assert spot.young_interval(0.01, 1 / 50) == pytest.approx(1.0)


def test_daly_interval():
    # C = 0.5, M = 24: sqrt(24) (1 + sqrt(1/96) / 3 + 1/864) - 0.5
    expected = 24**0.5 * (1 + (1 / 96) ** 0.5 / 3 + 1 / 864) - 0.5
    assert spot.daly_interval(0.5, 1 / 24) == pytest.approx(expected)
    assert spot.daly_interval(3.0, 1.0) == 1.0  # C >= 2 M: an interval of M


def test_expected_hours_without_interruptions_are_work_and_saving():
    assert spot.expected_hours(10.0, 0.0, 2.0, 0.1, 5.0) == pytest.approx(10.5)


def test_expected_hours_to_first_order():
    # T = 10, tau = 1, C = 0, R = 0.25, lambda = 1e-5: T (1 + lambda (tau / 2 + R)), the rest is of second order
    found = spot.expected_hours(10.0, 1e-5, 1.0, 0.0, 0.25)
    assert found - 10.0 == pytest.approx(10 * 1e-5 * (0.5 + 0.25), rel=1e-4)


@pytest.mark.parametrize(("mean", "restart"), [(5.0, 0.25), (2.0, 0.5), (40.0, 0.1)])
def test_the_closed_form_is_the_mean_of_simulated_runs(mean, restart):
    arguments = (30.0, 1 / mean, spot.daly_interval(0.05, 1 / mean), 0.05, restart)
    runs = spot.simulated_hours(*arguments, runs=40_000, seed=7)
    standard_error = runs.std() / len(runs) ** 0.5
    assert abs(runs.mean() - spot.expected_hours(*arguments)) < 4 * standard_error
    assert runs.min() >= 30.0


@given(st.floats(1.0, 200.0), st.floats(5.0, 1000.0), st.floats(0.001, 0.2), st.floats(0.05, 0.5))
def test_the_daly_interval_is_near_the_best(work, mean, checkpoint, restart):
    grid = np.geomspace(checkpoint, work, 200)
    best = np.min(spot.expected_hours(work, 1 / mean, grid, checkpoint, restart))
    interval = np.minimum(spot.daly_interval(checkpoint, 1 / mean), work)
    assert spot.expected_hours(work, 1 / mean, interval, checkpoint, restart) <= best * 1.02


@given(st.floats(0.1, 0.9), st.floats(5.0, 500.0), st.floats(0.05, 0.5))
def test_at_the_break_even_hazard_both_cost_the_same(ratio, work, restart):
    checkpoint = 0.01
    hazard = spot.break_even_hazard(ratio, work, checkpoint, restart)
    interval = np.minimum(spot.daly_interval(checkpoint, hazard), work)
    assert ratio * spot.expected_hours(work, hazard, interval, checkpoint, restart) == pytest.approx(work, rel=0.02)


def test_no_discount_no_break_even():
    assert spot.break_even_hazard(1.0, 10.0, 0.01, 0.25) == 0.0


def test_hazard_of_a_monthly_class():
    # 20 % interrupted within 730 h: -ln(0.8) / 730
    assert spot.hazard_of_monthly_share(0.2) == pytest.approx(0.22314 / 730, rel=1e-4)


def test_a_hopeless_run_is_a_number():
    assert np.isfinite(spot.expected_hours(1e6, 10.0, 1e6, 1.0, 1.0))
