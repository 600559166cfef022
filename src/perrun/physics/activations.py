"""Bytes per token that one decoder layer keeps for its backward, operation by operation.

Everything is linear in the tokens of the micro batch except eager attention's score matrices, so a layer is a few
numbers [bytes per token], and a million settings cost a few multiplications.

The count follows what autograd saves in the modelling code that runs (transformers' eager modules; fused kernels of
Liger, Unsloth, TransformerEngine): a matrix saves its input only if something of it is trained; a multiplication
saves both factors; RMSNorm in eager code saves its fp32 copy; flash attention saves q, k, v, its output and one fp32
log-sum-exp per head. Source: reading of transformers 4.48 and 5.24 modelling code, peft 0.21 LoRA layers,
FlashAttention-2 (arXiv 2307.08691, algorithm 1 and 2); checked against traced steps (bench/trace_grid.py).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from perrun.shapes import Layer, Linear

FP32 = 4.0


@dataclass(frozen=True, slots=True)
class Regime:
    """How the numbers are held while a layer runs.

    act: bytes of an activation inside the block; residual: bytes of one in the residual stream (4 when norms and
    embeddings are fp32); autocast: matrices cast their inputs themselves; trains_base: full fine-tuning;
    adapted: which matrices carry LoRA; adapter_fp32: LoRA matrices are fp32; dropout: LoRA dropout is on;
    base: storage of the frozen matrices (bf16, nf4, int8, gptq, fp8).
    base_saves_inputs: frozen matrices of a k-bit base keep their input although nothing of them is trained.
    fp32: nothing runs in 16 bits. dora: magnitudes are trained too. hook_free_inputs: frozen matrices keep inputs where
    checkpointing cannot drop them.
    merges_experts: LoRA on fused expert tensors adds its product to a copy of them, which is trained through.
    grouped_experts: all experts of a mixture run in one kernel instead of one after the other.
    kernels: eager, fused (norm and rope), liger, unsloth, compiled, te. attention: eager, sdpa, flash2, flash3, te.
    """

    act: float
    residual: float
    autocast: bool
    trains_base: bool
    adapted: Callable[[Linear], bool]
    adapter_fp32: bool
    dropout: bool
    base: str
    kernels: str
    attention: str
    grouped_experts: bool
    base_saves_inputs: bool
    merges_experts: bool
    fp32: bool
    dora: bool
    hook_free_inputs: bool


@dataclass(frozen=True, slots=True)
class LayerBytes:
    """Bytes per token of one layer; the `scores` fields are per token and per key (eager attention only).

    input: the residual that enters (all that full checkpointing keeps). shared: the part of `saved` that is that
    very input. undropped: what checkpointing cannot drop. selective: what selective checkpointing keeps (see
    `selective_saved`). saved: what stays for backward without checkpointing. backward: the most that is alive inside
    the layer while its backward runs, saved included; backward_sum: while the weighted sum of experts runs its own;
    backward_matmul: while the last matrix of the MLP runs its own (when a k-bit base holds an unpacked copy of it);
    backward_attention: while the attention runs its own, when the MLP is done and, in eager code, `backward_scores` are
    alive.
    """

    input: float
    shared: float
    undropped: float
    selective: float
    saved: Any
    saved_scores: float
    backward: Any
    backward_sum: Any
    backward_matmul: Any
    backward_attention: Any
    backward_scores: float


def _fused_elementwise(kernels: str) -> bool:
    return kernels in ("liger", "unsloth", "compiled", "te")


def norm_saved(width: float, trained: bool, regime: Regime, norm: str, input_bytes: float) -> float:
    """Bytes per token that one norm over `width` keeps (its output is counted by whoever reads it).

    Eager RMSNorm: the fp32 copy of its input (none is made where the input is fp32 already, but then that one is
    kept), and the normalised input where its weight is trained, in fp32 if it is multiplied so. A layer norm that is
    written out keeps the centred input twice. Fused kernels: the input as it is.
    """
    if norm == "layer" or regime.kernels != "eager":
        return input_bytes * width
    copies = 2 if norm == "layer-fp32" else 1
    normed = input_bytes if norm == "rms" else FP32
    return FP32 * copies * width + (normed * width if trained else 0.0)


def norm_backward(width: float, regime: Regime, norm: str, input_bytes: float) -> float:
    """Bytes per token alive beside what the norm kept, at the widest moment of its backward: fp32 gradients.

    Five of them for RMSNorm (of the normalised input, and of the input by either factor with the square's temporaries),
    four for a layer norm that is written out; a fused kernel writes its result alone. Source: traced steps.
    """
    if norm == "layer" or regime.kernels != "eager":
        return input_bytes * width
    return FP32 * (4 if norm == "layer-fp32" else 5) * width


def inputs_saved(group: list[Linear], width: float, regime: Regime, produced: float) -> float:
    """Bytes per token kept by matrices that read one common input of `width` elements of `produced` bytes.

    Full: the input once; under autocast from fp32, one bf16 cast per matrix. LoRA: bf16 matrices A read the input
    itself; fp32 ones each cast it (fp32 without autocast, bf16 with), with dropout also a mask of one byte.
    Each A keeps its own output for B. Source: peft LoRA Linear.forward; torch.autocast casts inputs per call.
    """
    if regime.trains_base:
        return len(group) * 2.0 * width if regime.autocast and produced > regime.act else produced * width
    adapted = [m for m in group if regime.adapted(m)]
    if adapted and all(m.role == "expert" for m in group):
        return produced * width  # the merged tensor is trained through: it reads the input itself
    adapted = [m for m in adapted if m.role != "expert"]
    if not adapted:
        return regime.act * width if regime.base_saves_inputs else 0.0
    no_cast = not regime.adapter_fp32 or (produced == FP32 and not regime.autocast)
    if no_cast and not regime.dropout:
        return produced * width
    element = 2.0 if regime.autocast or not regime.adapter_fp32 else FP32
    return len(adapted) * (element + (1.0 if regime.dropout else 0.0)) * width


def dora_saved(group: list[Linear], regime: Regime) -> float:
    """Bytes per token of DoRA: the base's and the adapter's outputs, both multiplied by what the magnitude gives.

    Source: peft, tuners/lora/dora.py (DoraLinearLayer.forward).
    """
    if not regime.dora:
        return 0.0
    return 2.0 * regime.act * sum(m.out_features * m.active for m in group if regime.adapted(m))


def adapter_inner(group: list[Linear], rank: Any, regime: Regime) -> Any:
    """Bytes per token of the rank-wide outputs of the A matrices."""
    element = 2.0 if regime.autocast or not regime.adapter_fp32 else FP32
    return element * rank * float(sum(m.active for m in group if regime.adapted(m) and m.role != "expert"))


def split_attention(layer: Layer) -> tuple[list[Linear], list[Linear]]:
    """The matrices of the mixer: those that read the normed residual, and the last, which writes back to it."""
    linears = [m for m in layer.linears if m.role == "attention"]
    return linears[:-1], linears[-1:]


def split_mlp(layer: Layer) -> tuple[list[Linear], list[Linear]]:
    """The matrices of the MLP (all experts): those that read the normed residual, and those that write back."""
    readers: list[Linear] = []
    writers: list[Linear] = []
    for role in ("mlp", "expert", "shared_expert"):
        linears = [m for m in layer.linears if m.role == role]
        readers += linears[:-1]
        writers += linears[-1:]
    return readers, writers


def latents_saved(latents: list[Linear], regime: Regime) -> float:
    """Bytes per token of matrices that read a normed latent (multi-head latent attention) instead of the residual."""
    return sum(
        norm_saved(m.in_features, regime.trains_base, regime, "rms", regime.act)
        + (0.0 if regime.trains_base else inputs_saved([m], m.in_features, regime, regime.act))
        for m in latents
    )


def attention_saved(layer: Layer, regime: Regime) -> tuple[float, float]:
    """Bytes per token that the mixer keeps between its matrices, and bytes per token and key of its scores.

    Flash kernels: q, k, v after rotary embedding, the output, and one fp32 log-sum-exp a head. Eager: q, the
    repeated k and v, and of the scores the fp32 softmax and its bf16 copy. q/k norms: as norms over the heads.
    """
    q = layer.heads * layer.head_dim
    k = layer.kv_heads * layer.head_dim
    v = layer.kv_heads * layer.v_head_dim
    out = layer.heads * layer.v_head_dim
    act = 2.0 if regime.attention != "eager" and not regime.fp32 else regime.act  # flash kernels take 16-bit inputs
    norms = 0.0
    if layer.qk_norm:
        norms = norm_saved(q + k, regime.trains_base, regime, layer.norm, regime.act)
    repeated = layer.heads * (layer.head_dim + layer.v_head_dim)
    if regime.attention == "eager":
        copies = 1 + layer.score_softcap + layer.score_dropout
        scores = layer.heads * (regime.act * copies + (FP32 if layer.softmax_fp32 else 0.0) + layer.score_dropout)
        written = act * out if regime.trains_base else 0.0  # else what reads it keeps its own (see inputs_saved)
        return norms + act * (q + repeated) + written, scores
    if regime.fp32:  # the memory-efficient kernel: k and v repeated, and the output copied for the next matrix
        return norms + act * (q + repeated + 2 * out) + FP32 * layer.heads, 0.0
    if layer.head_dim > layer.v_head_dim and regime.attention in ("flash2", "flash3"):
        written = out if regime.trains_base else 0.0  # values and output are padded to the width of the queries
        return norms + act * (q + k + k + q + written) + FP32 * layer.heads, 0.0
    held = q + k if layer.fused_qkv else 0.0  # values are a view, which keeps queries and keys before their turn
    return norms + act * (q + k + v + out + held) + FP32 * layer.heads, 0.0


def mlp_saved(layer: Layer, regime: Regime) -> tuple[float, float, float]:
    """Bytes per token between the MLP's matrices: (kept besides the last matrix's input, that input, widest backward).

    Gated, eager: gate, its activation and up are kept; the backward of the product holds three more. A fused SwiGLU
    keeps gate and up and writes their gradients in place. Plain: what the activation function keeps
    (`activation_tensors`); its backward holds the gradients of output and input, or of the output and both factors
    where it is composed.
    """
    wide = regime.act * layer.intermediate
    gated = layer.mlp in ("gated", "moe")
    if not gated:
        return layer.activation_tensors * wide, wide, min(1 + layer.activation_tensors, 3) * wide
    if _fused_elementwise(regime.kernels):
        return 2 * wide, wide, 1 * wide
    return (2 + layer.activation_tensors) * wide, wide, 3 * wide


def routing_saved(layer: Layer, hidden: float, regime: Regime) -> float:
    """Bytes per token that routing keeps: the gathered inputs and the experts' outputs before their weights.

    One copy of the hidden state per active expert is gathered, and the product of the experts' output with the
    router's weight keeps that output; a router that is trained in fp32 keeps an fp32 copy of its input. Source:
    transformers *Experts.forward (index, linear, multiply, index_add), *TopkRouter.forward.
    """
    experts = [m for m in layer.linears if m.role == "expert"]
    if not experts:
        return 0.0
    top_k = experts[0].active
    trained = regime.trains_base or any(map(regime.adapted, experts))
    gathered = regime.act * hidden * top_k if trained else 0.0
    routed = FP32 * hidden if trained and layer.router_fp32 else 0.0
    return gathered + regime.act * hidden * top_k + routed


def combining(layer: Layer, hidden: float, regime: Regime) -> float:
    """Bytes per token while the weighted sum of the active experts runs backward, where one kernel runs them all.

    Three tensors of one hidden state per active expert: the gradient spread over the experts, the same in the order of
    the experts, and its product with the weights; in fp32 where the weights are. Source: transformers,
    integrations/moe.py (grouped_mm); traced steps.
    """
    experts = [m for m in layer.linears if m.role == "expert"]
    element = FP32 if layer.router_fp32 else regime.act
    return 3.0 * element * hidden * experts[0].active if experts and regime.grouped_experts else 0.0


def reader_gradients(readers: list[Linear], regime: Regime) -> float:
    """Bytes per token of the gradients round the widest adapted matrix that reads the residual.

    They are of its output (put together from gate's and up's), and in the adapter's dtype of its branch, before and
    after scaling. Matters where gate and up are one matrix.
    """
    widths = [m.out_features * m.active for m in readers if regime.adapted(m) and m.role != "expert"]
    branch = FP32 if regime.adapter_fp32 and not regime.autocast else 2.0
    return max(widths, default=0) * (2 * regime.act + 2 * branch)


def experts_at_once(layer: Layer, regime: Regime) -> float:
    """Share of the MLP's token rows whose backward is alive at once: one expert's where experts run in a loop.

    A loop over experts (transformers 4 modules) runs backward expert by expert; grouped kernels run all together.
    """
    experts = [m for m in layer.linears if m.role == "expert"]
    if not experts or regime.grouped_experts:
        return 1.0
    return 1.0 / experts[0].copies


def merged_experts(layer: Layer, regime: Regime) -> tuple[float, float]:
    """(bytes of the layer's merged expert tensors, bytes of the last one's gradient), whatever the tokens.

    peft's LoRA on a fused tensor computes W + B A in every forward, which autograd keeps, and the gradient of that sum
    is as large as W. Source: peft, tuners/lora/layer.py (ParamWrapper); traced steps of Mixtral and Qwen3-MoE.
    """
    experts = [m for m in layer.linears if m.role == "expert" and regime.adapted(m)]
    if not experts or not regime.merges_experts:
        return 0.0, 0.0
    return 2.0 * sum(m.weights for m in experts), 2.0 * experts[-1].weights


def selective_saved(layer: Layer, hidden: float, regime: Regime) -> float:
    """Bytes per token kept by selective checkpointing of operations: the layer's input, the attention's output and
    the outputs of every second matrix multiplication; the rest is recomputed.

    Source: pytorch/torchtitan, distributed/activation_checkpoint.py (save list with every second mm recomputed).
    """
    products = sum(m.out_features * m.active for m in layer.linears if m.role != "head")
    return regime.residual * hidden + regime.act * (0.5 * products + layer.heads * layer.v_head_dim)


@dataclass(frozen=True, slots=True)
class _Half:
    """One half of a layer, attention or MLP: what it keeps [bytes per token] and how wide its last matrix reads."""

    saved: Any
    norms: float
    width: float


Ends = tuple[list[Linear], list[Linear]]  # the matrices that read the normed residual, and those that write back to it


def _attention_half(layer: Layer, ends: Ends, hidden: float, rank: Any, regime: Regime, mixer: float) -> _Half:
    """Everything up to the residual after the mixer; mixer: what stands between its matrices (`attention_saved`)."""
    read, write = ends
    latents = [m for m in read if layer.mixer == "mla" and m.in_features != hidden]
    normed = FP32 if regime.residual == FP32 else regime.act
    produced = regime.residual if regime.residual == FP32 and not regime.autocast else regime.act
    width = write[0].in_features if write else 0.0
    norms = layer.norms / 2 * norm_saved(hidden, regime.trains_base, regime, layer.norm, regime.residual)
    saved = (
        norms
        + inputs_saved([m for m in read if m not in latents], hidden, regime, normed)
        + latents_saved(latents, regime)
        + adapter_inner(read + write, rank, regime)
        + dora_saved(read + write, regime)
        + mixer
        + _mask(layer, hidden)
        + (0.0 if regime.trains_base else inputs_saved(write, width, regime, produced))
    )
    return _Half(saved, norms, width)


def _mlp_half(layer: Layer, ends: Ends, hidden: float, rank: Any, regime: Regime, kept: float) -> _Half:
    """Everything up to the input of the last matrix; kept: what stands between the matrices (`mlp_saved`)."""
    read, write = ends
    parallel = layer.norms == 1 and regime.trains_base and bool(read)  # the MLP reads what the attention reads
    normed = FP32 if regime.residual == FP32 else regime.act
    norms = layer.norms / 2 * norm_saved(hidden, regime.trains_base, regime, layer.norm, regime.residual)
    saved = (
        norms
        + _mask(layer, hidden)
        + (0.0 if parallel else inputs_saved(read, hidden, regime, normed))
        + adapter_inner(read + write, rank, regime)
        + dora_saved(read + write, regime)
        + kept
        + routing_saved(layer, hidden, regime)
    )
    return _Half(saved, norms, hidden if read else 0.0)


def _mask(layer: Layer, hidden: float) -> float:
    """Bytes per token of the mask with which a branch's output is dropped: one each."""
    return hidden if layer.residual_dropout else 0.0


def _scores_backward(layer: Layer, regime: Regime) -> float:
    """Bytes per token and key while eager attention runs backward: softmax, its gradient before and after."""
    softmax = FP32 if layer.softmax_fp32 else regime.act
    capped = regime.act if layer.score_softcap else 0.0
    return (3 * softmax + capped + (1.0 if layer.score_dropout else 0.0)) * layer.heads


def layer_bytes(layer: Layer, hidden: float, rank: Any, regime: Regime) -> LayerBytes:
    """One decoder layer as bytes per token; see the module for what is counted.

    hidden: width of the residual stream; rank: of the adapters (0 without), may be an array.
    """
    mixer, scores = attention_saved(layer, regime)
    kept, product, widest = mlp_saved(layer, regime)
    at_once = experts_at_once(layer, regime)
    product, widest = product * at_once, widest * at_once
    mixed, (readers, writers) = split_attention(layer), split_mlp(layer)
    attention = _attention_half(layer, mixed, hidden, rank, regime, mixer)
    mlp = _mlp_half(layer, (readers, writers), hidden, rank, regime, kept)
    adapted = any(map(regime.adapted, writers))
    last = sum(inputs_saved([m], m.in_features * m.active, regime, regime.act) for m in writers)
    entering = regime.residual * hidden
    whole = attention.saved + mlp.saved + entering
    at_last = whole + last + product + (last if adapted else 0.0)
    at_reader = attention.saved + mlp.norms + entering + reader_gradients(readers, regime)
    # gradients of output and queries, and the fp32 accumulator of flash kernels
    at_attention = attention.saved + entering + 2.0 * (attention.width + layer.heads * layer.head_dim)
    at_attention += 0.0 if scores else FP32 * attention.width
    undropped = 0.0
    if regime.hook_free_inputs:  # bitsandbytes keeps them as attributes, past the hooks of checkpointing
        entered = hidden if mixed[0] else 0.0
        undropped = regime.act * (entered + attention.width + mlp.width + layer.intermediate)
    copies = regime.kernels == "eager" and layer.norm != "layer" and regime.residual < FP32
    return LayerBytes(
        input=entering,
        shared=0.0 if copies else entering,
        undropped=undropped,
        selective=selective_saved(layer, hidden, regime),
        saved=attention.saved + mlp.saved + last,
        saved_scores=scores,
        backward=np.maximum(np.maximum(at_last, whole + widest), at_reader),
        backward_sum=whole + last + combining(layer, hidden, regime),
        # the adapter's branch ran first: its gradient waits while the frozen matrix is unpacked for its own
        backward_matmul=whole + product * (2.0 if adapted else 1.0),
        backward_attention=at_attention,
        backward_scores=_scores_backward(layer, regime) if scores else 0.0,
    )
