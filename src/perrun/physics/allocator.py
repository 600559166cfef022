"""From what the allocator handed out to what it reserved and what the device shows, and whether that fits."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

GIB = 1024.0**3


def reserved_bytes(
    allocated: Any, resident: Any, activations: Any, layer: Any, logits: Any, steps: Any, extra: bool, reuse: "Reuse"
) -> Any:
    """Bytes that PyTorch's caching allocator ends up holding [bytes], on a card of unlimited memory.

    It hardly reuses a block for a larger size, so pools of different sizes add up even where their phases do not
    overlap: the layers' activations, the logits and their copies, gradients and the optimizer's temporaries. Each
    pool counts with the share that is not served from another pool's blocks (fitted, see calibration). What comes
    and goes within a step leaves gaps (`slack`); weights and states do not. Stacks whose loop keeps further copies of
    what a step makes (`extra`) reserve several times these pools. Source of the mechanism: torch/c10
    CUDACachingAllocator (blocks over 1 MiB are split and reused only within a segment).
    """
    more = 1.0 + (reuse.extra if extra else 0.0)
    by_tokens = (1.0 + reuse.slack) * activations + reuse.layer * layer + reuse.logits * logits
    pools = resident + more * by_tokens + reuse.steps * steps
    return np.maximum(pools, resident + (1.0 + reuse.slack) * (allocated - resident))


class Reuse:
    """Fitted shares of each pool that come on top (dimensionless) and constant parts of the device [bytes]."""

    def __init__(self, values: dict[str, float]) -> None:
        self.layer = values["pool_layer"]
        self.logits = values["pool_logits"]
        self.steps = values["pool_steps"]
        self.extra = values["pool_extra"]
        self.slack = values["pool_slack"]
        self.least = values["pool_least"]
        self.context = values["context_gib"] * GIB
        self.communicator = values["communicator_gib"] * GIB


def device_bytes(reserved: Any, allocated: Any, several_gpus: Any, usable: Any, reuse: Reuse) -> Any:
    """Bytes that nvidia-smi shows: reserved, CUDA context and, with several GPUs, communicator buffers.

    When the pools would overflow the card the allocator gives cached blocks back and goes on, so the device shows
    at most the card, as long as what is allocated fits.
    """
    fixed = reuse.context + np.where(several_gpus, reuse.communicator, 0.0)
    least = allocated * (1.0 + reuse.least) + fixed
    return np.maximum(np.minimum(reserved + fixed, usable), least)


def fits_probability(allocated: Any, several_gpus: Any, usable: Any, reuse: Reuse, spread: float) -> Any:
    """Probability that the step runs: that what must be allocated, plus what the device needs besides, is usable.

    The need is log-normal around the closed form with standard deviation `spread` (of the log ratio of measured to
    predicted allocated peaks); usable: what nvidia-smi calls total [bytes].
    """
    fixed = reuse.context + np.where(several_gpus, reuse.communicator, 0.0)
    room = np.maximum(usable - fixed, 1.0)
    need = allocated * (1.0 + reuse.least)
    return normal_cdf(np.log(room / need) / spread)


def normal_cdf(z: Any) -> NDArray[np.float64]:
    """Standard normal distribution function, Abramowitz and Stegun 26.2.17 (absolute error below 7.5e-8)."""
    z = np.asarray(z, dtype=np.float64)
    t = 1.0 / (1.0 + 0.2316419 * np.abs(z))
    poly = t * (0.319381530 + t * (-0.356563782 + t * (1.781477937 + t * (-1.821255978 + t * 1.330274429))))
    tail: NDArray[np.float64] = np.exp(-0.5 * z * z) / np.sqrt(2.0 * np.pi) * poly
    return np.where(z >= 0, 1.0 - tail, tail)
