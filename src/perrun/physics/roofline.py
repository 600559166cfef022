"""Rates that matrix products and attention reach, and bytes that memory-bound work moves.

The bytes are counted by hand from the operations: an operation that is a kernel of its own reads its inputs from and
writes its output to device memory. Sources: transformers 4.48 modelling_llama.py (eager), Liger-Kernel and Unsloth
(one kernel per norm, rotary embedding, SwiGLU), TransformerEngine (fused norm), torch inductor (pointwise chains).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from perrun.shapes import Layer, Linear, Shape

BF16 = 2.0
FP32 = 4.0
# Of the rated bandwidth that copies reach: 1.49 to 1.79 of 2.04 TB/s on A100, 912 of 1008 GB/s on RTX 4090, 831 of 936
# on RTX 3090 (chsasank/device-benchmarks:README.md).
BANDWIDTH = 0.85

# Times that a product reads its operands from device memory: a product of 8192 x 4096 by tiles of 128 x 256 reads each
# 16 to 64 times, of which the cache serves what one wave of tiles shares (CUTLASS, efficient GEMM: threadblock
# rasterisation). Three leaves the pairs of A100 and H100 at short sequences without bias.
REREAD = 3.0

# Quantising one element of an operand: read (2), and written twice, as it is and transposed (1 + 1); kernels of their
# own read it once more for the scale (2) and copy it transposed by themselves (1 + 1). TransformerEngine and torchao
# float8 (dynamic scaling). NVFP4 rotates operands first (read 2, write 2; arXiv 2509.25149 section 4.2).
QUANTISE_FUSED = 4.0
QUANTISE_APART = 8.0
TRANSFORM = 4.0


@dataclass(frozen=True, slots=True)
class Moves:
    """Bytes per element, (forward, backward), of each kind of elementwise work.

    norm: per element of the residual stream and norm; rope: per element of q and k; gate: per element between the
    MLP's matrices; residual: per element added to the residual stream.
    """

    norm: tuple[float, float]
    rope: tuple[float, float]
    gate: tuple[float, float]
    residual: tuple[float, float]


# Eager RMSNorm: to fp32 (2+4), square (4+4), mean (4), scale (4+4), to bf16 (4+2), weight (2+2) = 36; its backward
# reads twice and writes once in fp32 for each. Eager rotary: two products, a rotation by halves and a sum. Eager
# SwiGLU: silu (2+2) and product (4+2); backward (4+2) and two products (2 x 6).
EAGER = Moves(norm=(36.0, 60.0), rope=(20.0, 24.0), gate=(10.0, 18.0), residual=(6.0, 6.0))
# One kernel each: read and write; backward reads the saved input and the gradient.
FUSED = Moves(norm=(4.0, 8.0), rope=(4.0, 4.0), gate=(6.0, 10.0), residual=(6.0, 6.0))
# Norm and rotary embedding fused, MLP not (fms-acceleration's fast kernels; Composer's low-precision layer norm).
PARTLY = Moves(norm=(4.0, 8.0), rope=(4.0, 4.0), gate=(10.0, 18.0), residual=(6.0, 6.0))
MOVES = {"eager": EAGER, "fused": PARTLY, "liger": FUSED, "unsloth": FUSED, "compiled": FUSED, "te": FUSED}
# One activation function (2+2, backward 4+2) beside gate's silu and product.
PLAIN_MLP = 0.45
# Token copies of an expert layer: gather, product with the router's weight, scatter.
ROUTE = (12.0, 16.0)
# Scores of eager attention per element: written, scaled, masked, softmax in fp32 and back, read by the product.
SCORES = (24.0, 30.0)


def elementwise(layer: Layer, hidden: int, kernels: str, residual_bytes: float) -> tuple[float, float]:
    """(forward, backward) bytes per token of one layer's elementwise work.

    residual_bytes: of an element of the residual stream (4 under autocast from fp32 weights, else 2).
    """
    moves = MOVES[kernels]
    norms = FUSED.norm if layer.norm == "layer" else moves.norm  # torch has one kernel for layer norm
    wide = residual_bytes / BF16
    rotated = (layer.heads + layer.kv_heads) * layer.head_dim
    values = (layer.heads + layer.kv_heads) * layer.v_head_dim
    normed = hidden * layer.norms * wide + (rotated if layer.qk_norm else 0)
    gated = layer.intermediate * (1.0 if layer.mlp in ("gated", "moe") else PLAIN_MLP)
    routed = hidden * next((m.active for m in layer.linears if m.role == "expert"), 0)

    def one(i: int) -> float:
        mixer = BF16 * (rotated + values) * (1.0, 2.0)[i]
        stream = 2 * hidden * wide * moves.residual[i]
        return normed * norms[i] + rotated * moves.rope[i] + gated * moves.gate[i] + stream + mixer + routed * ROUTE[i]

    return one(0), one(1)


def scores(shape: Shape) -> tuple[float, float]:
    """(forward, backward) bytes per token and key that eager attention moves in all layers."""
    heads = sum(layer.count * layer.heads for layer in shape.layers if layer.mixer in ("attention", "mla"))
    return heads * SCORES[0], heads * SCORES[1]


def adapter(m: Linear, dropout: bool, fp32: bool, fused: bool) -> tuple[float, float]:
    """(forward, backward) bytes per token of the elementwise work round one LoRA pair.

    Forward: cast of the input to the adapter's dtype (2+4), dropout (read, write, mask), scale and add of the output
    (2+2, 4+2), beside the narrow products that read the input and write the output. Fused kernels do the sum in the
    product. Source: peft tuners/lora/layer.py Linear.forward.
    """
    wide, out = m.in_features * m.active, m.out_features * m.active
    if fused:
        return BF16 * (wide + out), 2 * BF16 * (wide + out)
    element = FP32 if fp32 else BF16
    cast = (BF16 + FP32) if fp32 else 0.0
    drop = (2 * element + 1.0) if dropout else 0.0
    forward = wide * (cast + drop + element) + out * (3 * element + 3 * BF16)
    return forward, 1.5 * forward


# Bytes per token and entry of the vocabulary that logits and loss move, forward and backward. plain: product (2), fp32
# copy (2+4), shift (4+4), log-softmax (4+4), its backward (8+4), unshift (4+4), to bf16 (4+2), two products (4).
# native: the loss takes 16-bit logits. chunked: plain without the shift. triton: one kernel beside the product and the
# two of backward. inplace: the gradient overwrites the logits. fused: logits stay in blocks.
LOSS = {"plain": 54.0, "chunked": 38.0, "native": 30.0, "triton": 12.0, "inplace": 14.0, "fused": 10.0}


def operands(every: list[tuple[int, Linear]]) -> tuple[float, float]:
    """Elements per token that all matrices read and write in one forward."""
    read = sum(count * m.in_features * m.active for count, m in every)
    written = sum(count * m.out_features * m.active for count, m in every)
    return float(read), float(written)


def total(every: list[tuple[int, Linear]], keep: Callable[[Linear], bool]) -> float:
    """Weights of the matrices that `keep` accepts."""
    return float(sum(count * m.weights for count, m in every if keep(m)))


# Share of the rated 16-bit peak that attention kernels reach, forward and backward together, by compute capability.
# FlashAttention 1: 25 to 40 % on A100 (arXiv 2307.08691 section 1), no Hopper instruction. FlashAttention-2: 63 %
# backward and 73 % forward on A100 (section 4.1), 35 % at best on H100 (FlashAttention-3, arXiv 2407.08608, abstract,
# whose own kernels reach 75 % forward). cuDNN in TransformerEngine is as fast as FlashAttention-3 there. Blackwell:
# below Hopper's share, as its softmax rate did not grow; Blackwell Ultra doubles that (vendor's brief). AMD (0): of the
# rated peak, of which products reach two thirds at best.
ATTENTION: dict[str, tuple[tuple[float, float], ...]] = {
    "flash1": ((0.0, 0.15), (7.0, 0.35), (9.0, 0.21), (10.0, 0.21), (12.0, 0.35)),
    "flash2": ((0.0, 0.20), (7.0, 0.60), (9.0, 0.33), (10.0, 0.35), (12.0, 0.60)),
    "te": ((0.0, 0.40), (7.0, 0.62), (9.0, 0.58), (10.0, 0.50), (10.3, 0.66), (12.0, 0.60)),
}
SAME_AS = {"flash3": "te", "sdpa": "flash2", "eager": "flash2"}
# A card whose products fall short of this share of the rated peak falls short in attention too.
REFERENCE_SHARE = 0.80


def attention_share(kernel: str, compute_capability: Any) -> Any:
    """Share of the 16-bit peak for an attention kernel; compute_capability 0 for cards that are not NVIDIA's."""
    steps = ATTENTION[SAME_AS.get(kernel, kernel)]
    found = np.full(np.shape(compute_capability), steps[0][1], dtype=float)
    for since, share in steps[1:]:
        found = np.where(np.asarray(compute_capability) >= since, share, found)
    return found
