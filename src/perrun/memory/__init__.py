"""Peak memory of one GPU as named lines per phase: the closed form over the laws of `physics`."""

from perrun.memory.phases import LAWS, PHASES, Peak, peak
from perrun.memory.weights import base_storage

__all__ = ["LAWS", "PHASES", "Peak", "base_storage", "peak"]
