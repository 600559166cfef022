"""What a provider bills: plain functions over scalars or arrays, seconds and dollars in, dollars out."""

from typing import Any

import numpy as np


def billed_seconds(seconds: Any, increment: Any, minimum: Any) -> Any:
    """Seconds on the bill: max(minimum, ceil(t / step) x step) [s].

    Source: billing pages of the providers as read in providers.csv (AWS per second with a minimum of 60, Lambda per
    minute, blocks and clusters by the hour or the week). A step that is met to a millionth is not rounded up.
    """
    steps = np.ceil(np.asarray(seconds, dtype=float) / increment - 1e-6)
    return np.maximum(minimum, steps * increment)


def blocks(gpu_hours: Any, block: Any) -> Any:
    """Number of prepaid blocks of `block` GPU-hours that cover `gpu_hours`."""
    return np.ceil(np.asarray(gpu_hours, dtype=float) / block - 1e-9)


def transfer_seconds(n_bytes: Any, bytes_per_s: float) -> Any:
    """Seconds to move bytes at a rate."""
    return n_bytes / bytes_per_s
