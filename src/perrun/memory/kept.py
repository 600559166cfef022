"""Activations of all layers: what checkpointing keeps to the end of the forward, and one layer's widest backward."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from perrun.facts.stacks import Stack
from perrun.memory.weights import Weights
from perrun.physics import activations
from perrun.setting import Setting
from perrun.shapes import Shape


def _layers(shape: Shape, how: activations.Regime, rank: Any) -> dict[str, Any]:
    """Sums over layers [bytes per token] and the widest layer, by what checkpointing keeps."""
    groups = [(layer.count, activations.layer_bytes(layer, shape.hidden_size, rank, how)) for layer in shape.layers]
    inputs = sum(count * b.input for count, b in groups)
    saved = sum(count * b.saved for count, b in groups)
    scores = sum(count * b.saved_scores for count, b in groups)
    widest = max((b for _, b in groups), key=lambda b: float(np.max(b.backward)))
    return {
        "input": inputs,
        "undropped": sum(count * b.undropped for count, b in groups),
        "saved": saved,
        "selective": sum(count * b.selective for count, b in groups),
        "widest_selective": widest.selective,
        "scores": scores,
        "widest": widest.backward,
        "sum": widest.backward_sum,
        "matmul": widest.backward_matmul,
        "widest_saved": widest.saved,
        "attention": max((b.backward_attention for _, b in groups), key=lambda b: float(np.max(b))),
        "attention_scores": max(b.backward_scores for _, b in groups),
        "widest_scores": max(b.saved_scores for _, b in groups),
        "one_input": widest.input,
        "shared": widest.shared,
    }


def how_embedding(stack: Stack, how: activations.Regime) -> float:
    """Bytes of an element that the embedding puts out: 16 bits where only norms were prepared for k-bit training."""
    return 2.0 if stack.kbit_upcast == "norms" else how.residual


@dataclass(frozen=True, slots=True)
class Kept:
    """Bytes per token kept by all layers at the end of the forward, and extra while one layer runs backward: at the
    widest moment of its elementwise work, while experts are summed, while its last matrix runs, and while its attention
    runs.
    """

    kept: Any
    elementwise: Any
    summed: Any
    matmul: Any
    attention: Any


def kept_by_layers(layers: dict[str, Any], checkpointing: str, reentrant: bool, seq: Any) -> Kept:
    """What checkpointing keeps. Re-entrant checkpointing also holds the recomputed output (torch/utils/checkpoint.py
    CheckpointFunction); what is kept is not counted again in the layer that runs backward.
    """
    scores = layers["widest_scores"] * seq
    moments = (
        layers["widest"] + scores,
        layers["sum"] + scores,
        layers["matmul"] + scores,
        layers["attention"] + layers["attention_scores"] * seq,
    )
    recomputed = -layers["shared"] + (layers["one_input"] if reentrant else 0.0)
    kept, less = {
        "none": (layers["saved"] + layers["scores"] * seq, -(layers["widest_saved"] + scores)),
        "selective": (layers["selective"], -layers["widest_selective"]),
        "unsloth": (layers["one_input"] * 2, recomputed),  # inputs go to host memory, one stays
        "full": (layers["input"] + layers["undropped"], recomputed),
    }[checkpointing]
    return Kept(kept, *(moment + less for moment in moments))


@dataclass(frozen=True, slots=True)
class Activations:
    """Bytes of activations: kept to the end of the forward; extra in one layer's backward, and while its attention
    runs (negative where less is left by then); what an unpacked k-bit matrix adds to the former; the store of inputs.
    """

    kept: Any
    backward: Any
    attention: Any
    unpacked: Any
    inputs: Any


def of_layers(
    shape: Shape, setting: Setting, stack: Stack, how: activations.Regime, w: Weights, tokens: Any
) -> Activations:
    """Activations of a micro batch of `tokens` on one GPU, split by tensor and pipeline parallel ranks.

    Tensor ranks split the residual stream too, by its tokens: every stack here that has them runs sequence
    parallelism (Korthikanti et al., arXiv 2205.05198; Megatron-LM, NeMo, torchtitan).
    """
    layers = _layers(shape, how, setting.lora_rank if setting.adapters else 0.0)
    if how.residual > how_embedding(stack, how):  # the first layer's input is the embedding, in 16 bits
        layers["input"] -= 2.0 * shape.hidden_size
    per_token = kept_by_layers(layers, setting.checkpointing, stack.reentrant, setting.seq_len)
    tp, pp = (np.asarray(degree, dtype=float) for degree in (setting.tp, setting.pp))
    merged_kept, merged, merged_gradient, merged_attention = _merged(shape, setting, how)
    elementwise = tokens * per_token.elementwise / tp + merged + merged_gradient
    summed = tokens * per_token.summed / tp + merged
    attention = tokens * per_token.attention / tp + merged_attention
    plain = np.maximum(np.maximum(np.maximum(elementwise, summed), attention), 0.0)
    # an unpacked matrix is alive only while its product runs, not at the widest moment of the elementwise work
    unpacks = 2.0 * w.largest_matrix if w.base_dtype in ("nf4", "int8") else 0.0
    product = tokens * per_token.matmul / tp + merged + merged_gradient + unpacks
    return Activations(
        kept=tokens * per_token.kept / (tp * pp) + merged_kept,
        backward=plain,
        attention=attention,
        unpacked=np.maximum(product - plain, 0.0),
        inputs=tokens * layers["input"],
    )


def _merged(shape: Shape, setting: Setting, how: activations.Regime) -> tuple[float, float, float, float]:
    """Bytes of merged expert tensors: kept by all layers; extra in one layer's MLP, the last one's gradient there, and
    extra in its attention. When attention runs its backward the layer's own merged tensors are gone.
    """
    groups = [(layer.count, *activations.merged_experts(layer, how)) for layer in shape.layers]
    one, gradient = max((merged, last) for _, merged, last in groups)
    if setting.checkpointing == "none":
        return sum(count * merged for count, merged, _ in groups), 0.0, gradient, -one
    return 0.0, one, gradient, 0.0
