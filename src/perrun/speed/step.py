"""From work to seconds: the law of a step, with its few fitted constants."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from perrun.facts.stacks import Stack
from perrun.physics import comm, roofline
from perrun.setting import Setting
from perrun.speed.card import Card, half_rate, rate
from perrun.speed.work import FP4_KEPT_IN_16_BIT, Work, kernels_of

LAWS = {
    "matrix products": "FLOPs over the rate that the best product reaches x efficiency, operands over bandwidth",
    "attention": "FLOPs of scores and values over the rate of the attention kernel",
    "memory-bound work": "bytes of norms, activations, rotary embedding, adapters, logits and loss over bandwidth",
    "dequantisation": "bytes of unpacking a k-bit base in every pass over bandwidth, times the kernel's slowness",
    "host": "launches and hooks, where the host takes longer than the device",
    "communication": "bytes over the slowest link of the group, less what compute hides",
    "offload": "bytes over the host link, less what compute hides",
    "pipeline bubble": "(stages - 1) / (interleaved stages x micro batches) of the micro steps",
    "slowest rank": "ranks wait for the one whose rows are longest",
    "optimizer": "bytes of gradients, weights and states over bandwidth; gradient reduction once per step",
    "generation": "weights and cache read for every new token over bandwidth",
}
# How host and device overlap: the longer of the two, smoothly. Qwen's tables show it: the time of a step is flat up to
# 1,024 tokens and then proportional to them (qwen-readme-profiling).
OVERLAP_NORM = 4.0
# TransformerEngine and Megatron split collectives of tensor parallelism to hide about half (arXiv 2205.05198 section
# 4.2.2; user buffers); others wait for them.
TENSOR_OVERLAP = {"te": 0.5}


@dataclass(frozen=True, slots=True)
class Law:
    """The fitted constants.

    product: efficiency of matrix products relative to the best one; attention: relative to the kernel's share;
    eager, fused: time of memory-bound bytes relative to bandwidth; launch: seconds of one kernel launch; hook: seconds
    of one hook; nf4, gptq: slowness of unpacking; overlap: share of data-parallel communication that compute can
    hide; power: exponent of board power; grouped: efficiency of grouped expert products; fill: steps along the inner
    dimension that fill a product's pipeline.
    """

    product: float
    attention: float
    eager: float
    fused: float
    launch: float
    hook: float
    nf4: float
    gptq: float
    overlap: float
    power: float
    grouped: float
    fill: float


@dataclass(frozen=True, slots=True)
class Question:
    """Numbers of a card and a setting that the law reads beside the work; numbers or arrays."""

    rate: Any
    half: Any
    kept_half: Any
    attention: Any
    bandwidth: Any
    power: Any
    data_rate: Any
    tensor_rate: Any
    context_rate: Any
    expert_rate: Any
    host_rate: Any
    latency: Any
    tensor_overlap: Any


def domain(setting: Setting, card: Card) -> Any:
    """GPUs that share a fast link: those of a node, or of a rack."""
    n = np.asarray(setting.n_gpus, dtype=float)
    return np.maximum(n / np.asarray(setting.n_nodes, dtype=float), np.minimum(card.domain, n))


def question(setting: Setting, card: Card, stack: Stack) -> Question:
    """What the law reads of a card under a setting. Raises UnsupportedByGpu for a precision that it lacks."""
    s = setting
    tp, cp, ep, n = (np.asarray(v, dtype=float) for v in (s.tp, s.cp, s.ep, s.n_gpus))
    reach = domain(s, card)
    inside = np.where(np.isnan(card.link), np.inf, card.link)
    between = np.where(np.isnan(card.node_link), np.inf, card.node_link)
    copies = reach / (tp * cp)
    data = n / (tp * np.asarray(s.pp, dtype=float) * cp)
    flash = s.attention in ("flash2", "sdpa")
    share = roofline.attention_share((flash and stack.attention_kernel) or s.attention, card.compute_capability)
    return Question(
        rate=rate(card, s.precision),
        half=half_rate(card, s.precision),
        kept_half=FP4_KEPT_IN_16_BIT if s.precision == "nvfp4" and not s.adapters else 0.0,
        attention=card.attention_peak * share / roofline.REFERENCE_SHARE,
        bandwidth=card.bandwidth * roofline.BANDWIDTH,
        power=card.power,
        data_rate=comm.group_rate(inside, between, data, np.maximum(copies, 1.0), copies),
        tensor_rate=comm.group_rate(inside, between, tp, reach, 1.0),
        context_rate=comm.group_rate(inside, between, tp * cp, reach, 1.0),
        expert_rate=comm.group_rate(inside, between, ep, reach, 1.0),
        host_rate=np.where(np.isnan(card.host_link), np.inf, card.host_link),
        latency=2.0 * (tp - 1.0) * card.latency,
        tensor_overlap=TENSOR_OVERLAP.get(kernels_of(s, stack), 0.0),
    )


def _hidden(communication: Any, compute: Any, share: Any) -> Any:
    """Communication that is left when `share` of it may run under compute."""
    return communication - share * np.minimum(communication, compute)


def lines(w: Work, q: Question, law: Law) -> dict[str, Any]:
    """Named parts of one optimizer step [s]; they sum to it."""
    power = q.power**law.power
    low, half = q.rate * law.product * power, q.half * law.product * power
    products = w.product_flops * ((1.0 - q.kept_half) / low + q.kept_half / half) + w.half_flops / half
    products = products + (w.expert_flops + w.grouped_flops / law.grouped + law.fill * w.fill_flops) / low
    products = products + w.product_bytes / q.bandwidth
    attention = w.attention_flops / (q.attention * law.attention * power)
    moved = (law.eager * w.eager_bytes + law.fused * w.fused_bytes) / q.bandwidth
    unpacked = (law.nf4 * w.nf4_bytes + law.gptq * w.gptq_bytes) / q.bandwidth
    device = products + attention + moved + unpacked
    host = w.launches * law.launch + w.hooks * law.hook
    busy = (device**OVERLAP_NORM + host**OVERLAP_NORM) ** (1.0 / OVERLAP_NORM)
    shared = w.gather_bytes / q.data_rate + w.context_bytes / q.context_rate
    blocking = w.tensor_bytes / q.tensor_rate + w.expert_bytes / q.expert_rate + w.collectives * q.latency
    exposed = _hidden(shared, busy, law.overlap) + _hidden(blocking, busy, q.tensor_overlap)
    offload = _hidden(w.offload_bytes / q.host_rate, busy, law.overlap)
    reduced = _hidden(w.reduce_bytes / q.data_rate, busy, law.overlap)
    micro = w.micro_steps
    waiting = (busy + exposed + offload) * (w.imbalance - 1.0) * micro
    return {
        "matrix products": products * micro,
        "attention": attention * micro,
        "memory-bound work": moved * micro,
        "dequantisation": unpacked * micro,
        "host": (busy - device) * micro,
        "communication": exposed * micro + reduced,
        "offload": offload * micro + w.offload_step_bytes / q.host_rate,
        "pipeline bubble": (busy + exposed + offload) * micro * w.bubble,
        "slowest rank": waiting,
        "optimizer": w.update_bytes / q.bandwidth,
        "generation": w.generate_bytes / q.bandwidth,
    }
