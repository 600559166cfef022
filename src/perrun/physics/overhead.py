"""What the host does for a step: launching kernels, and the hooks of sharded modules.

A kernel launch from Python costs microseconds whatever the card, so fast cards gain less at small batches. Counts are
per layer and pass, read off profiles of the modelling code: backward launches about twice what forward does.
"""

from typing import Any

from perrun.shapes import Layer, Shape

# Kernels of one decoder layer's forward without adapters. Eager: norms 12, projections 4, rotary 11, attention and
# copies 2, residual 2, MLP 5; compiled and TransformerEngine: about one per matrix and fused chain.
LAYER = {"eager": 36.0, "fused": 24.0, "liger": 22.0, "unsloth": 22.0, "compiled": 14.0, "te": 16.0}
ADAPTER = 6.0  # cast, dropout, two narrow products, scale, add
# Unpacking one k-bit matrix: NF4 with nested scales goes through MatMul4Bit's autograd function (bitsandbytes); GPTQ
# kernels unpack by themselves.
UNPACK = {"nf4": 6.0, "int8": 6.0, "gptq": 3.0}
# An expert in a loop: index, gather, three products, activation, product, scatter, and a wait for the number of tokens.
LOOPED_EXPERT = 16.0
# Grouped experts: sorting and permuting tokens; TransformerEngine quantises every local expert's operands one by one.
GROUPED_LAYER = 30.0
GROUPED_EXPERT = {True: 8.0, False: 2.0}
# Hooks per sharded unit, in units of DeepSpeed's fetch and release of one module: FSDP 1 gathers, waits, re-points
# every parameter and reshards; FSDP2 does less of it in Python.
HOOKS = {"fsdp": 4.0, "fsdp2": 2.0, "zero3": 1.0}


def experts(layer: Layer, looped: bool, quantised_compute: bool, expert_parallel: Any) -> Any:
    """Launches of one layer's experts per forward."""
    found = next((m for m in layer.linears if m.role == "expert"), None)
    if found is None:
        return 0.0
    if looped:
        return found.copies * LOOPED_EXPERT
    return GROUPED_LAYER + found.copies / expert_parallel * GROUPED_EXPERT[quantised_compute]


def hooks(shape: Shape, sharding: str, deepspeed: bool, adapters: float) -> float:
    """Hooks per pass over the model.

    adapters: LoRA pairs that are modules of their own; PEFT's wrapping policy makes each of their two matrices an
    FSDP unit (peft utils/other.py fsdp_auto_wrap_policy). deepspeed: ZeRO-3 hooks every module that holds parameters,
    whatever the number of ranks.
    """
    if sharding == "zero3" or deepspeed:
        return sum(layer.count * (len(layer.linears) + layer.norms) for layer in shape.layers) + 2.0 * adapters
    if sharding == "fsdp":
        return HOOKS["fsdp"] * (shape.n_layers + 1 + 2.0 * adapters)
    return HOOKS["fsdp2"] * shape.n_layers if sharding == "fsdp2" else 0.0
