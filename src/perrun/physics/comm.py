"""Bytes that one GPU sends and receives, by how the model is split; and what a pipeline leaves idle.

Ring algorithms: an all-gather or reduce-scatter of `size` bytes over n ranks moves size x (n - 1) / n through each
rank's link, an all-reduce twice that (NCCL; Patarasuk and Yuan 2009, doi 10.1016/j.jpdc.2008.09.002).
"""

from typing import Any

import numpy as np


def ring(size: Any, ranks: Any) -> Any:
    """Bytes through one rank's link for an all-gather or a reduce-scatter of `size` bytes over all ranks."""
    n = np.asarray(ranks, dtype=float)
    return size * (n - 1.0) / n


def bubble(stages: Any, micro_batches: Any, virtual: Any = 1) -> Any:
    """Idle time of a 1F1B pipeline over its busy time: (p - 1) / (v m).

    Source: Megatron-LM, arXiv 2104.04473 sections 2.2.1 and 2.2.2 (v interleaved stages per rank).
    """
    return (np.asarray(stages, dtype=float) - 1.0) / (np.asarray(virtual, dtype=float) * micro_batches)


def tensor_parallel(activation: Any, degree: Any) -> Any:
    """Bytes through one link per layer and pass: two all-reduces (or pairs of all-gather and reduce-scatter).

    activation: bytes of one [tokens, hidden]. Source: Megatron-LM, arXiv 1909.08053 section 3; sequence parallel
    moves the same bytes (arXiv 2205.05198 section 4.2.2).
    """
    return 2.0 * 2.0 * ring(activation, degree)


def context_parallel(keys_values: Any, degree: Any) -> Any:
    """Bytes through one link per layer and pass: every rank sees the keys and values of all others.

    keys_values: bytes of k and v of one rank's tokens. Source: Ring Attention, arXiv 2310.01889.
    """
    return keys_values * (np.asarray(degree, dtype=float) - 1.0)


def expert_parallel(activation: Any, active: int, degree: Any, islands: Any) -> Any:
    """Bytes through one link per layer and pass: tokens go to `active` experts and come back.

    islands: groups of GPUs with a fast link that the expert parallel ranks span. Over several of them a token crosses
    to each remote one once, whatever number of its experts sit there: the expected number of distinct remote islands
    of k random experts is (g - 1) (1 - (1 - 1/g)^k). Sources: GShard, arXiv 2006.16668 section 3.2 (two all-to-alls);
    DeepSeek-V3, arXiv 2412.19437 section 3.2.2 (node-limited dispatch).
    """
    g = np.asarray(islands, dtype=float)
    sent = np.asarray(activation, dtype=float)
    remote = (g - 1.0) * (1.0 - (1.0 - 1.0 / g) ** active)
    n = np.asarray(degree, dtype=float)
    return 2.0 * sent * np.where(g > 1, remote, active * (n - 1.0) / n)


def group_rate(inside: Any, between: Any, members: Any, reach: Any, ports: Any) -> Any:
    """Bytes per second through one link of a ring over `members` GPUs.

    inside, between: rates of the fast link and of one GPU's port of the network; reach: GPUs that the fast link
    joins. A ring that leaves its island is as fast as the ports of its members there (`ports`) together, at most the
    fast link: NCCL builds as many rings as there are ports (nccl-tests bus bandwidth over nodes).
    """
    fast = np.asarray(inside, dtype=float)
    outside = np.minimum(fast, np.asarray(between, dtype=float) * np.maximum(np.asarray(ports, dtype=float), 1.0))
    return np.where(np.asarray(members, dtype=float) > np.asarray(reach, dtype=float), outside, fast)
