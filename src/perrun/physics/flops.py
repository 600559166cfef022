"""Floating-point operations of one training step, per token, as sums over the matrices of the shape.

A multiplication and an addition count as two. Backward of a matrix is two products of the size of its forward: the
gradient of its input (needed wherever something earlier is trained) and of its weight (only if it is trained).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from perrun.physics.params import targeted
from perrun.shapes import Layer, Linear, Shape

# Backward of flash attention: five matrix products against two of its forward, since the scores are computed again
# (FlashAttention-2, arXiv 2307.08691 section 3.1; torch.utils.flop_counter sdpa_backward_flop_count). Eager attention
# keeps the scores: four against two.
FLASH_BACKWARD = 2.5
EAGER_BACKWARD = 2.0
# Tokens of one chunk in the blockwise form of linear attention and state-space layers (mamba_ssm: chunk_size 256; fla:
# 64): the geometric mean.
CHUNK = 128


@dataclass(frozen=True, slots=True)
class Products:
    """Matrix products of one forward over the model, per token [FLOP].

    last: of each layer's last matrix where it carries no adapter; recomputation that stops early never reaches it.
    """

    linears: float
    experts: float
    router: float
    head: float
    adapters: Any
    last: float


def never(_: Linear) -> bool:
    """The predicate of a method without adapters."""
    return False


def hits(targets: str) -> Callable[[Linear], bool]:
    """The predicate of adapters on `targets`."""
    return lambda m: targeted(m, targets)


def matrix(m: Linear) -> float:
    """Forward of one matrix for one token [FLOP]: 2 x in x out, times the copies that the token passes through."""
    return 2.0 * m.in_features * m.out_features * m.active


def adapter(m: Linear, rank: Any) -> Any:
    """Forward of a LoRA pair on `m` for one token [FLOP]: 2 r (in + out). Source: arXiv 2106.09685 section 4.1."""
    return 2.0 * rank * (m.in_features + m.out_features) * m.active


def matrices(shape: Shape) -> list[tuple[int, Linear]]:
    """(number of equal layers, matrix) of every matrix of the decoder, the head excepted."""
    return [(layer.count, m) for layer in shape.layers for m in layer.linears if m.role != "head"]


def products(shape: Shape, adapted: Callable[[Linear], bool], rank: Any) -> Products:
    """One forward of all layers and the head, per token."""
    every = matrices(shape)
    ends = [(layer.count, layer.linears[-1]) for layer in shape.layers if layer.linears]
    return Products(
        linears=sum(count * matrix(m) for count, m in every if m.role not in ("expert", "router")),
        experts=sum(count * matrix(m) for count, m in every if m.role == "expert"),
        router=sum(count * matrix(m) for count, m in every if m.role == "router"),
        head=2.0 * shape.hidden_size * shape.vocab_size,
        adapters=sum((count * adapter(m, rank) for count, m in every if adapted(m)), 0.0),
        last=sum(count * matrix(m) for count, m in ends if not adapted(m)),
    )


def mean_context(tokens: Any, window: int | None) -> Any:
    """Keys that a query of a causal sequence sees, on average over the sequence of `tokens`.

    (S + 1) / 2; with a sliding window w < S the first w queries see their prefix and the rest w keys.
    """
    length = np.asarray(tokens, dtype=float)
    if window is None:
        return (length + 1) / 2
    w = np.minimum(length, window)
    return (w * (w + 1) / 2 + (length - w) * w) / length


def attention(layer: Layer, tokens: Any, causal: bool = True) -> Any:
    """Forward of the mixer's own products (scores and weighted values) of one layer, per token [FLOP].

    2 x heads x (head_dim + v_head_dim) x keys seen. causal False: the kernel computes the masked half too (eager).
    Linear attention and state-space mixers: within a chunk as attention, plus reading and writing a state of
    head_dim x v_head_dim per head (Mamba-2, arXiv 2405.21060 section 6; gated delta rule, arXiv 2412.06464).
    """
    if layer.mixer == "none":
        return 0.0
    width = 2.0 * layer.heads * (layer.head_dim + layer.v_head_dim)
    if layer.mixer in ("linear_attention", "mamba"):
        return width * CHUNK / 2 + 4.0 * layer.heads * layer.head_dim * layer.v_head_dim
    return width * (mean_context(tokens, layer.window) if causal else np.asarray(tokens, dtype=float))


def attention_forward(shape: Shape, tokens: Any, causal: bool = True) -> Any:
    """All layers' mixers, per token [FLOP]."""
    return sum((layer.count * attention(layer, tokens, causal) for layer in shape.layers), 0.0)


def trained_sequences(objective: str) -> float:
    """Sequences that are trained per example: chosen and rejected for preference objectives.

    Source: DPO, arXiv 2305.18290 equation 7; ORPO, arXiv 2403.07691; reward models, arXiv 2203.02155.
    """
    return 2.0 if objective in ("dpo", "orpo", "rm") else 1.0


def forward_only(objective: str) -> float:
    """Forward passes without backward per trained sequence: reference model, KL estimate, reward, old policy.

    DPO: the reference. KTO: the reference on the pair and on the mismatched pair, and the policy on the latter
    (arXiv 2402.01306 section 4.2). PPO: reference, reward, values and old log-probabilities (arXiv 2203.02155). GRPO:
    reference and old log-probabilities (arXiv 2402.03300).
    """
    return {"dpo": 1.0, "kto": 3.0, "ppo": 4.0, "grpo": 2.0}.get(objective, 0.0)
