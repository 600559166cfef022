"""Peak memory of one GPU as named lines per phase: the closed form over the laws of `physics`.

Peak = max over phases (end of forward, backward of the loss, backward of the last layer, backward of the first
layer, optimizer step), each a sum of lines. Everything is vectorised over the numbers of a `Setting`.
"""

from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt

from perrun.facts.stacks import Stack
from perrun.memory.kept import Activations, of_layers
from perrun.memory.weights import Weights, base_storage, regime, weights
from perrun.physics import activations, sharding
from perrun.physics import memory as law
from perrun.setting import Setting
from perrun.shapes import Shape

Lines = dict[str, Any]
Array = npt.NDArray[np.float64]

PHASES = (
    "forward",
    "loss",
    "final norm",
    "backward",
    "gradients",
    "last attention",
    "attention",
    "embedding",
    "optimizer",
)

# Two cuBLAS handles of 4096 x 1024 x 2 + 16 x 1024 x 8 bytes (getChosenWorkspaceSize in pytorch/pytorch,
# aten/src/ATen/cuda/CublasHandlePool.cpp); 32 MiB each on Hopper, which is still nothing beside a model.
CUBLAS_WORKSPACES = 2 * (4096 * 1024 * 2 + 16 * 1024 * 8)

PREFERENCE = ("dpo", "orpo", "kto")  # chosen and rejected rows are one batch, and log-probabilities are picked by row

LAWS = {
    "base weights": "frozen or trained weights at their stored bits, shard of this rank",
    "autocast copies": "bf16 copies of fp32 matrices that autocast caches from forward to backward",
    "adapters": "LoRA matrices A [rank, in] and B [out, rank] at their dtype",
    "gradients": "one per trained parameter, in its dtype",
    "tied gradients": "gradients of head and embedding and their sum, when they share weights",
    "optimizer state": "moments (and fp32 master weights) per trained parameter, from the second step on",
    "optimizer temporary": "square root of the second moments of all parameters (foreach AdamW)",
    "saved activations": "what autograd keeps of every layer (inputs only under full checkpointing)",
    "layer backward": "one layer recomputed, and the gradients inside it",
    "logits and loss": "logits, fp32 copies, their gradient: tokens x vocabulary",
    "dequantised weights": "the largest k-bit matrix unpacked to bf16",
    "sharding buffers": "gathered layers, reduce buckets",
    "reference model": "DPO's second copy of the weights",
    "cuBLAS workspaces": "two handles (forward and autograd thread) of 8.125 MiB",
    "inputs": "ids, labels, masks, rotary tables",
}


@dataclass(frozen=True, slots=True)
class Peak:
    """The widest phase of a step: its lines [bytes] sum to `allocated` [bytes]; `phase` is an index into PHASES.

    pools: every line at its own widest phase, for the allocator hardly reuses a block for another size.
    """

    lines: Lines
    allocated: Any
    phase: Any
    by_phase: dict[str, Any]
    pools: Lines


def _loss(shape: Shape, setting: Setting, stack: Stack, how: activations.Regime, tokens: Any) -> tuple[Any, Any, Any]:
    """Bytes of logits and loss at the end of forward, in backward, and as a pool of the allocator."""
    kind = "fused" if setting.fused_ce else ("plain" if stack.loss == "fused" else stack.loss)
    act = 4.0 if setting.precision == "fp32" else 2.0
    held = act if stack.keeps_logits else 0.0
    d, trains = shape.hidden_size, how.trains_base
    norm = activations.norm_saved(d, trains, how, shape.layers[-1].norm, how.residual) + (
        how.act * d if trains else 0.0
    )
    if kind == "fused":
        both = law.fused_loss_bytes(shape.vocab_size, d, tokens, trains, act) + tokens * norm
        return both, both, both
    forward = law.loss_forward_bytes(shape.vocab_size, kind, act, shape.softcap)
    backward = law.loss_backward_bytes(shape.vocab_size, kind, act, held, shape.softcap)
    if setting.objective in PREFERENCE:
        backward += law.FP32_COPY * shape.vocab_size
    pool = law.loss_pool_bytes(shape.vocab_size, kind, act) if kind != "chunked" else backward
    return tokens * (forward + norm), tokens * (backward + norm + how.residual * d), tokens * pool


def _states(setting: Setting, stack: Stack, w: Weights) -> float:
    """Bytes of optimizer state per trained parameter, fp32 master weights included where the stack keeps them."""
    if stack.master_weights and not setting.adapters and setting.precision != "fp32":
        return law.optimizer_state_bytes(setting.optimizer, 4.0) + 4.0
    return law.optimizer_state_bytes(setting.optimizer, w.trained_dtype)


def peak(
    shape: Shape, setting: Setting, stack: Stack, stored_quantization: str | None = None, told: bool = True
) -> Peak:
    """Allocated peak of one GPU.

    Raises nothing: settings are checked before. Tokens per micro batch are micro_batch x seq_len / cp; DPO doubles
    them (chosen and rejected are one batch).
    """
    storage = base_storage(setting, stack, stored_quantization)
    w = weights(shape, setting, stack, stored_quantization)
    how = regime(setting, stack, storage)
    dp = np.maximum(np.asarray(setting.data_parallel, dtype=float), 1.0)
    model_parallel = np.asarray(setting.tp * setting.pp, dtype=float)
    share = sharding.shares(setting.sharding, dp, w.base_is_quantised, stack.shards_quantised)
    pairs = 2.0 if setting.objective in PREFERENCE else 1.0
    seq = setting.seq_len / np.asarray(setting.cp, dtype=float)
    tokens = setting.micro_batch * seq * pairs
    resident = _resident(setting, stack, w, share, model_parallel)
    acts = of_layers(shape, setting, stack, how, w, tokens)
    forward, backward, pool = _loss(shape, setting, stack, how, tokens / np.asarray(setting.tp, dtype=float))
    made = _gradients(shape, setting, stack, w, share.gradients, model_parallel)
    temporary = w.trained * law.optimizer_temporary_bytes(setting.optimizer, stack.optimizer_impl, w.trained_dtype)
    root, layer = _gathered(shape, setting, w)
    retained = 2.0 * acts.inputs if _retains(setting, stack) else acts.kept / max(shape.n_layers, 1)
    head = float(shape.hidden_size * shape.vocab_size)
    cast_forward, cast_backward = _autocast_copies(setting, stack, w, head, model_parallel)
    kept: Lines = {"saved activations": acts.kept, "autocast copies": cast_backward}
    forward_lines = kept | {"gradients": made.held, "sharding buffers": root}
    in_layer: Lines = {"layer backward": acts.backward, "dequantised weights": acts.unpacked}
    norm = tokens * _final_norm(shape, how) / np.asarray(setting.tp, dtype=float)
    phases: dict[str, Lines] = {
        "forward": forward_lines | {"logits and loss": forward, "autocast copies": cast_forward},
        "loss": forward_lines | {"logits and loss": backward},
        "final norm": forward_lines | {"layer backward": norm, "gradients": made.of_head},
        "backward": kept | in_layer | {"gradients": made.of_head, "sharding buffers": root + layer},
        "gradients": in_layer
        | {"saved activations": retained, "gradients": made.before_first, "sharding buffers": root + layer},
        "last attention": _attention_moment(acts.kept, acts, made.of_last, root + layer),
        "attention": _attention_moment(retained, acts, made.before_attention, root + layer),
        "embedding": {"gradients": made.all, "tied gradients": _tied_gradients(shape, w) * share.gradients},
        "optimizer": {"gradients": made.all, "optimizer temporary": temporary * share.states / model_parallel},
    }
    return _widest(resident, phases, {"logits and loss": pool}, told)


@dataclass(frozen=True, slots=True)
class _Made:
    """Bytes of gradients: held while the forward runs (of earlier micro batches), made when the head is done, when the
    last layer's MLP is done, before the first layer, before its attention, and all.
    """

    held: Any
    of_head: Any
    of_last: Any
    before_first: Any
    before_attention: Any
    all: Any


def _gradients(shape: Shape, setting: Setting, stack: Stack, w: Weights, share: Any, model_parallel: Array) -> _Made:
    accumulating = np.asarray(setting.grad_accum) > 1
    every = w.trained * w.trained_dtype * share / model_parallel
    if stack.fsdp_no_sync and setting.sharding in ("fsdp", "fsdp2"):
        every = np.where(accumulating, 2.0 * shape.total_params / model_parallel, every)
    held = np.where(accumulating, every, 0.0)
    head = shape.hidden_size * shape.vocab_size * w.trained_dtype * share if w.trains_base else 0.0
    layer, attention = (_last_gradients(shape, w, only) * share / model_parallel for only in (False, True))
    return _Made(
        held=held,
        of_head=np.maximum(held, head),
        of_last=np.maximum(held, head + layer - attention),
        before_first=np.maximum(held, every - layer),
        before_attention=np.maximum(held, every - attention),
        all=every,
    )


def _final_norm(shape: Shape, how: activations.Regime) -> float:
    """Bytes per token while the last norm runs backward, when every layer's activations are still kept."""
    norm = shape.layers[-1].norm
    kept = activations.norm_saved(shape.hidden_size, False, how, norm, how.residual)
    return kept + activations.norm_backward(shape.hidden_size, how, norm, how.residual)


def _attention_moment(kept: Any, acts: Activations, gradients: Any, buffers: Any) -> Lines:
    """Lines while one layer's attention runs backward: `kept` of the layers before it, less what its MLP held."""
    return {
        "saved activations": kept + np.minimum(acts.attention, 0.0),
        "layer backward": np.maximum(acts.attention, 0.0),
        "gradients": gradients,
        "sharding buffers": buffers,
    }


def _last_gradients(shape: Shape, w: Weights, attention_only: bool) -> float:
    """Bytes of gradients that do not exist yet while the first layer runs backward: its own, or its attention's where
    the MLP is done already, and the embedding's.
    """
    if not w.trains_base:
        return 0.0
    layer = max(shape.layers, key=lambda one: one.params)
    own = sum(m.params for m in layer.linears if m.role == "attention") if attention_only else layer.params
    return w.trained_dtype * (own + (0 if shape.tied else shape.embedding_params))


def _tied_gradients(shape: Shape, w: Weights) -> float:
    """Bytes beside the gradients when the embedding runs backward and shares its weights with the head.

    The head's gradient, the embedding's dense one and their sum are alive at once (autograd accumulates out of
    place); seen in traced steps of tied models.
    """
    return 2.0 * shape.embedding_params * w.trained_dtype if shape.tied and w.trains_base else 0.0


def _gathered(shape: Shape, setting: Setting, w: Weights) -> tuple[Any, Any]:
    """Bytes of the gathered root unit and of the running layer, beside the shards."""
    largest = max((layer.params for layer in shape.layers), default=0)
    per_parameter = w.base / max(shape.total_params, 1) if setting.adapters else 2.0
    several = np.asarray(setting.n_gpus) > np.asarray(setting.tp * setting.pp)
    root = sharding.gathered_root_bytes(setting.sharding, 2.0 * (shape.embedding_params + shape.head_weights))
    layer = sharding.gathered_layer_bytes(setting.sharding, largest * per_parameter, 0.0 if setting.adapters else 1.0)
    tp = np.asarray(setting.tp, dtype=float)
    return np.where(several, root / tp, 0.0), np.where(several, layer / tp, 0.0)


def _retains(setting: Setting, stack: Stack) -> bool:
    """Whether FSDP 1 holds the inputs of all layers to the end of backward (frozen parameters).

    Measured: slopes over micro batch of fms-acceleration-benchmarks on 2 and 4 GPUs, LoRA and QLoRA, are one
    checkpoint store larger than on 1; full fine-tuning's are not.
    """
    return stack.fsdp_retains and setting.sharding == "fsdp" and setting.adapters


def _resident(setting: Setting, stack: Stack, w: Weights, share: sharding.Shares, split: Any) -> Lines:
    """Lines that every phase holds."""
    trained_bytes = w.trained * w.trained_dtype
    # offloaded parts live in host memory; what a running layer needs is in the sharding buffers
    here = 0.0 if setting.offload in ("params", "both") else 1.0
    states_here = 0.0 if setting.offload in ("optimizer", "both") else 1.0
    frozen = w.base * share.base / split * here
    own = 0.0 if setting.adapters else trained_bytes * share.trained / split * here
    buckets = trained_bytes / split if setting.sharding == "ddp" else 0.0
    return {
        "base weights": frozen + own,
        "adapters": trained_bytes * share.trained if setting.adapters else 0.0,
        "optimizer state": w.trained * _states(setting, stack, w) * share.states / split * states_here,
        "sharding buffers": np.where(np.asarray(setting.n_gpus) > 1, buckets, 0.0),
        "reference model": frozen + own if setting.objective == "dpo" and not setting.adapters else 0.0,
        "inputs": 40.0 * setting.micro_batch * setting.seq_len,
        "cuBLAS workspaces": CUBLAS_WORKSPACES,
    }


def _autocast_copies(setting: Setting, stack: Stack, w: Weights, head: float, split: Any) -> tuple[Any, Any]:
    """Bytes of 16-bit copies that autocast makes of fp32 matrices: (while the forward runs, in the backward).

    Copies of trained ones are cached until the forward ends (torch.autocast caches leaves that require a gradient);
    the graph keeps those that it still needs: all of them, or under checkpointing only the head's. A frozen fp32
    base is copied in every layer and kept by the graph alone.
    """
    mixed = setting.precision in ("bf16-mixed", "fp16-mixed")
    kept = 2.0 * (w.matmul_params if setting.checkpointing == "none" else head) / split
    if not setting.adapters:
        eager = mixed and stack.kernels == "eager"
        return (2.0 * w.matmul_params / split, kept) if eager else (0.0, 0.0)
    adapters = 2.0 * w.trained if stack.autocast and stack.adapter_dtype == "fp32" else 0.0
    frozen = kept if w.base_dtype == "fp32" and mixed else 0.0
    return adapters + frozen, adapters + frozen


def _widest(resident: Lines, phases: dict[str, Lines], pools_of: Lines, told: bool) -> Peak:
    """The phase with the largest sum, with its lines, element by element. `pools_of` replaces a line's pool."""
    base = sum(resident.values())
    totals = {name: base + sum(lines.values()) for name, lines in phases.items()}
    stacked = np.stack(np.broadcast_arrays(*(np.asarray(t, dtype=float) for t in totals.values())))
    index = np.argmax(stacked, axis=0)
    chosen = dict(resident) if told else {}
    pools = dict(resident)
    for name in {name: None for lines in phases.values() for name in lines}:
        line = [lines.get(name, 0.0) for lines in phases.values()]
        pools[name] = reduce(np.maximum, line) + pools.get(name, 0.0)
        if told:
            which, *parts = np.broadcast_arrays(index, *line)
            chosen[name] = np.choose(which, parts) + chosen.get(name, 0.0)
    pools.update(pools_of)
    return Peak(chosen, np.max(stacked, axis=0), index, totals, pools)
