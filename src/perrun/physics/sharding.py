"""What each rank holds: a rule per (strategy, kind of weight), not one division for all."""

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class Shares:
    """Share of a model part that one rank keeps between steps (1: all of it)."""

    base: Any
    trained: Any
    gradients: Any
    states: Any


def shares(sharding: str, data_parallel: Any, base_is_quantised: bool, framework_shards_quantised: bool) -> Shares:
    """Shares by sharding strategy.

    DDP keeps everything everywhere; ZeRO-1 shards optimizer states, ZeRO-2 also gradients, ZeRO-3 and FSDP also
    weights (ZeRO, arXiv 1910.02054 section 5; FSDP, arXiv 2304.11277). A quantised base is sharded only by a
    framework that stores it in a dtype that its sharding can split (bnb_4bit_quant_storage; AnswerDotAI/fsdp_qlora);
    DeepSpeed ZeRO-3 keeps bitsandbytes weights whole on every rank (deepspeed issues as read in needs.md).
    """
    one = np.ones_like(np.asarray(data_parallel, dtype=float))
    part = 1.0 / np.asarray(data_parallel, dtype=float)
    whole_weights = {"none", "ddp", "zero1", "zero2"}
    base = one if sharding in whole_weights or (base_is_quantised and not framework_shards_quantised) else part
    return Shares(
        base=base,
        trained=one if sharding in whole_weights else part,
        gradients=one if sharding in ("none", "ddp", "zero1") else part,
        states=one if sharding in ("none", "ddp") else part,
    )


GATHERS = ("fsdp", "fsdp2", "zero3")


def gathered_root_bytes(sharding: str, root_bytes: float) -> float:
    """Bytes of the root unit (embeddings, head), which stays gathered from the forward to the end of backward.

    Source: FSDP, arXiv 2304.11277 section 3.2 (the outermost unit is not resharded between forward and backward).
    """
    return root_bytes if sharding in GATHERS else 0.0


def gathered_layer_bytes(sharding: str, layer_bytes: float, trained_share: float) -> float:
    """Bytes of the running layer's gathered weights, and of its whole gradients before they are reduced.

    Measured constant of fms-acceleration-benchmarks (Llama-3-8B LoRA, 2 and 4 GPUs): root and one layer.
    `trained_share`: trained parameters of the layer over all of its parameters.
    """
    return layer_bytes * (1.0 + trained_share) if sharding in GATHERS else 0.0
