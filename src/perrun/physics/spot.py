"""Interruptions: how often to save, and what lost work costs in expectation."""

from typing import Any

import numpy as np


def hazard_per_hour(mean_hours: Any) -> Any:
    """Interruptions per hour of a Poisson process with this mean time between them [1/h]."""
    return 1.0 / np.asarray(mean_hours, dtype=float)


def hazard_of_monthly_share(share: Any, hours: float = 730.0) -> Any:
    """Interruptions per hour if `share` of the machines are interrupted at least once in a month: -ln(1 - p) / month.

    Source: exponential survival; the share is what the AWS spot advisor publishes as a class.
    """
    return -np.log1p(-np.asarray(share, dtype=float)) / hours


def best_interval(checkpoint_hours: Any, hazard: Any) -> Any:
    """Hours of work between checkpoints that cost least: sqrt(2 C / lambda).

    Source: Young 1974, first-order optimum; Daly 2006 refines it where C is not small against the mean time.
    """
    return np.sqrt(2.0 * np.asarray(checkpoint_hours, dtype=float) / hazard)


def expected_overhead_hours(useful: Any, hazard: Any, checkpoint_hours: Any, restart_hours: Any) -> Any:
    """Hours on top of `useful` ones in expectation, saving at the best interval or once at the end if that is sooner.

    Lost work (half an interval) and a restart per interruption, plus the time of writing checkpoints:
    T lambda (tau / 2 + R) + T C / tau. Source: Young 1974; prices-and-engines practice in docs/prices.md.
    """
    useful = np.asarray(useful, dtype=float)
    interval = np.minimum(best_interval(checkpoint_hours, hazard), np.maximum(useful, 1e-9))
    lost = useful * hazard * (interval / 2.0 + restart_hours)
    saving = useful * checkpoint_hours / interval
    return lost + saving
