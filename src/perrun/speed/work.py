"""What one GPU has to do for one optimizer step: FLOPs, bytes and launches. No fitted constant is here.

Everything is vectorised over the numbers of a `Setting`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from perrun.facts.stacks import Stack
from perrun.physics import comm, flops, overhead, params, quant, roofline, tokens
from perrun.setting import Setting
from perrun.shapes import Linear, Shape

LOW_PRECISIONS = ("fp8", "mxfp8", "nvfp4")
KBIT = ("nf4", "gptq", "int8")
GATHERS = ("fsdp", "fsdp2", "zero3")  # weights are gathered in every pass
REDUCES_EACH = ("fsdp", "fsdp2", "zero2", "zero3")  # gradients are reduced in every micro step
# Bytes per trained parameter that an AdamW update reads and writes: gradient, weight and two moments in fp32, read and
# written (gradient read) = 28, clipping reads and scales the gradient (12).
UPDATE_BYTES = 40.0
# Training keeps the last layers out of FP4: 15 % of the blocks (NVIDIA, Pretraining LLMs with NVFP4, arXiv
# 2509.25149). A frozen base needs no such care.
FP4_KEPT_IN_16_BIT = 0.15
# Share of a rollout that is generated rather than given as prompt.
GENERATED = 0.5


@dataclass(frozen=True, slots=True)
class Work:
    """Per GPU and micro step unless said; numbers or arrays."""

    product_flops: Any  # products in the job's precision
    half_flops: Any  # products that stay in 16 bit: head, adapters, router
    expert_flops: Any  # products of experts, one call per expert
    grouped_flops: Any  # products of experts in grouped kernels
    attention_flops: Any
    fill_flops: Any  # outputs times two: what one step along the inner dimension costs
    product_bytes: Any  # operands and results of products, and their quantisation
    eager_bytes: Any  # elementwise work in kernels of their own
    fused_bytes: Any  # elementwise work in fused kernels
    nf4_bytes: Any
    gptq_bytes: Any
    launches: Any
    hooks: Any
    update_bytes: Any  # per step
    gather_bytes: Any  # over the data parallel link
    reduce_bytes: Any  # the same, per step
    tensor_bytes: Any  # over the tensor parallel link
    context_bytes: Any  # over the context parallel link
    expert_bytes: Any  # over the expert parallel link
    collectives: Any  # tensor parallel ones that block
    offload_bytes: Any  # over the host link
    offload_step_bytes: Any  # per step
    generate_bytes: Any  # per step
    bubble: Any  # idle over busy time of the pipeline
    imbalance: Any  # time of the slowest rank over that of the mean one
    micro_steps: Any


@dataclass(frozen=True, slots=True)
class _Plan:
    """What several counts share. tokens: of one micro step on one GPU, as the GPU sees them."""

    shape: Shape
    s: Setting
    stack: Stack
    kernels: str
    storage: str
    adapted: Callable[[Linear], bool]
    low: bool
    trains: float  # 1 when the base is trained
    forward: float  # forwards per micro step, recomputation and reference passes included
    recompute: float
    recompute_attention: float
    tokens: Any
    tp: Any
    pp: Any
    cp: Any
    ep: Any
    dp: Any
    split: Any  # ranks that share a layer or the layers
    expert_split: Any  # the same for experts
    expert_dp: Any  # ranks that hold the same experts
    islands: Any  # groups of fast-linked GPUs that expert parallel ranks span


def kernels_of(setting: Setting, stack: Stack) -> str:
    """Class of kernels that really runs: torch.compile fuses what eager code leaves apart."""
    if setting.compile and stack.kernels in ("eager", "fused"):
        return "compiled"
    return "eager" if stack.kernels == "compiled" and not setting.compile else stack.kernels


def storage_of(setting: Setting, stored_quantization: str | None) -> str:
    """How the frozen base is stored: nf4, gptq, int8, or bf16 for whatever needs no unpacking."""
    if setting.method in ("qlora", "qdora"):
        return "gptq" if stored_quantization in ("gptq", "awq") else "nf4"
    return "int8" if setting.method == "lora-int8" else "bf16"


def _recomputed(setting: Setting, stack: Stack) -> tuple[float, float]:
    """Share of a forward that is computed again, of products and of attention.

    Selective by operation keeps every second product and the attention (torchtitan, activation_checkpoint.py).
    Selective by attention computes the scores again (Megatron-LM, arXiv 2205.05198 section 5), which flash kernels do
    in their backward anyway.
    """
    if setting.checkpointing in ("full", "unsloth"):
        return 1.0, 1.0
    if setting.checkpointing == "selective":
        again = 1.0 if setting.attention == "eager" else 0.0
        return (0.0, again) if stack.selective == "attention" else (0.5, 0.0)
    return 0.0, 0.0


def _plan(shape: Shape, s: Setting, stack: Stack, stored: str | None, domain: Any) -> _Plan:
    tp, pp, cp, ep, n = (np.asarray(v, dtype=float) for v in (s.tp, s.pp, s.cp, s.ep, s.n_gpus))
    again, attention_again = _recomputed(s, stack)
    expert_split = pp * np.maximum(ep, tp)
    return _Plan(
        shape=shape,
        s=s,
        stack=stack,
        kernels=kernels_of(s, stack),
        storage=storage_of(s, stored),
        adapted=flops.hits(s.lora_targets) if s.adapters else flops.never,
        low=s.precision in LOW_PRECISIONS,
        trains=0.0 if s.adapters else 1.0,
        forward=1.0 + again + flops.forward_only(s.objective),
        recompute=again,
        recompute_attention=attention_again,
        tokens=s.micro_batch * s.mean_len * flops.trained_sequences(s.objective) / cp,
        tp=tp,
        pp=pp,
        cp=cp,
        ep=ep,
        dp=np.maximum(n / (tp * pp * cp), 1.0),
        split=tp * pp,
        expert_split=expert_split,
        expert_dp=np.maximum(n / expert_split, 1.0),
        islands=np.maximum(ep / domain, 1.0),
    )


def _products(p: _Plan) -> dict[str, Any]:
    """FLOPs of matrix products, head and attention."""
    s = p.s
    one = flops.products(p.shape, p.adapted, s.lora_rank if s.adapters else 0.0)
    times = p.forward + 1.0 + p.trains  # forwards, gradient of inputs, gradient of weights
    stops_early = s.checkpointing == "full" and not p.stack.reentrant
    linears = one.linears * times - (one.last * p.recompute if stops_early else 0.0)
    small = (one.adapters + one.router) * (p.forward + 2.0)
    head = one.head * (2.0 + flops.forward_only(s.objective) + p.trains)
    eager = s.attention == "eager"
    seen = s.document_len if s.document_len is not None and p.stack.document_mask else s.mean_len
    backward = flops.EAGER_BACKWARD if eager else flops.FLASH_BACKWARD
    attention = flops.attention_forward(p.shape, np.minimum(seen, s.mean_len), causal=not eager)
    attention = attention * (1.0 + p.recompute_attention + flops.forward_only(s.objective) + backward)
    experts = p.tokens * one.experts * times / p.split
    grouped = p.stack.experts == "grouped"
    return {
        "product_flops": p.tokens * linears / p.split,
        "half_flops": p.tokens * (small + head) / p.split,
        "attention_flops": p.tokens * attention / p.split,
        "expert_flops": 0.0 if grouped else experts,
        "grouped_flops": experts if grouped else 0.0,
    }


def _operands(p: _Plan) -> dict[str, Any]:
    """Bytes that products read and write, quantisation to 8 bits and below, and what fills their pipelines.

    A forward accumulates over `in` features, the gradient of inputs over `out`, that of weights over tokens.
    """
    every = flops.matrices(p.shape)
    read, written = roofline.operands(every)
    dense = roofline.total(every, lambda m: m.role != "expert") / p.split
    experts = roofline.total(every, lambda m: m.role == "expert") / p.expert_split
    element = 1.0 if p.low else roofline.BF16
    times = p.forward + 1.0 + p.trains
    again = roofline.REREAD * element
    activations = p.tokens * (again * read + roofline.BF16 * written) * times / p.split
    weights = (again * (p.forward + 1.0) + roofline.FP32 * p.trains) * (dense + experts)
    head = p.tokens * roofline.BF16 * p.shape.hidden_size * 3.0
    quantised = p.tokens * (read * (p.forward + p.trains) + written) * _quantisation(p) / p.split
    outputs = p.tokens * (written * p.forward + read) / p.split + p.trains * (dense + experts)
    return {
        "product_bytes": activations + weights + head + quantised + _weight_casts(p, dense + experts),
        "fill_flops": 2.0 * outputs,
    }


def _quantisation(p: _Plan) -> float:
    """Bytes per element of turning an operand to 8 or 4 bits."""
    if not p.low:
        return 0.0
    if p.kernels != "compiled":
        return roofline.QUANTISE_FUSED
    return roofline.QUANTISE_APART + (roofline.TRANSFORM if p.s.precision == "nvfp4" else 0.0)


def _weight_casts(p: _Plan, weights: Any) -> Any:
    """Bytes of the 16-bit copies that autocast makes of fp32 weights in every micro step (read 4, write 2)."""
    mixed = p.s.precision in ("bf16-mixed", "fp16-mixed") and p.trains > 0 and p.kernels == "eager"
    sharded = p.s.sharding in GATHERS or p.stack.engine == "deepspeed"  # shards are cast once, as they are gathered
    return 6.0 * weights * (1.0 + p.recompute) if mixed and not sharded else 0.0


def _fused_lora(p: _Plan) -> bool:
    """Adapter kernels that compute base and adapter together; none of them supports dropout."""
    return p.kernels == "unsloth" or (p.kernels == "fused" and p.stack.lora_dropout == 0)


def _elementwise(p: _Plan) -> dict[str, Any]:
    """Bytes of memory-bound work, by whether kernels are fused."""
    s = p.s
    mixed = s.precision in ("bf16-mixed", "fp16-mixed", "fp32") and p.kernels == "eager" and not s.adapters
    half = s.sharding.startswith("zero") or p.stack.engine == "deepspeed"  # DeepSpeed computes in 16 bits throughout
    wide = roofline.FP32 if mixed and not half else roofline.BF16
    forward = backward = 0.0
    for layer in p.shape.layers:
        one = roofline.elementwise(layer, p.shape.hidden_size, p.kernels, wide)
        forward, backward = forward + layer.count * one[0], backward + layer.count * one[1]
    fp32 = p.stack.adapter_dtype == "fp32" and not p.stack.autocast
    for count, m in flops.matrices(p.shape):
        if p.adapted(m):
            one = roofline.adapter(m, p.stack.lora_dropout > 0, fp32, _fused_lora(p))
            forward, backward = forward + count * one[0], backward + count * one[1]
    per_token = forward * p.forward + backward
    if s.attention == "eager":
        one = roofline.scores(p.shape)
        per_token = per_token + s.mean_len * (one[0] * p.forward + one[1])
    kind = "fused" if s.fused_ce else ("plain" if p.stack.loss == "fused" else p.stack.loss)
    loss = p.shape.vocab_size * roofline.LOSS[kind]
    moved = p.tokens * (per_token + loss) / p.split * (2.0 if s.precision == "fp32" else 1.0)
    apart = p.kernels in ("eager", "fused")
    return {"eager_bytes": moved if apart else 0.0, "fused_bytes": 0.0 if apart else moved}


def _unpacking(p: _Plan) -> dict[str, Any]:
    """Bytes of turning a k-bit base to 16 bits in every pass: read as stored, written as bf16."""
    stored = {"nf4": quant.nf4_bytes_per_weight(), "gptq": quant.gptq_bytes_per_weight(), "int8": 1.0}
    if p.storage not in KBIT:
        return {"nf4_bytes": 0.0, "gptq_bytes": 0.0}
    weights, _ = params.quantisable(p.shape, experts=p.stack.quantises_experts)
    moved = weights * (p.forward + 1.0) * (stored[p.storage] + roofline.BF16) / p.split
    gptq = p.storage == "gptq"
    return {"nf4_bytes": 0.0 if gptq else moved, "gptq_bytes": moved if gptq else 0.0}


def _host(p: _Plan) -> dict[str, Any]:
    """Kernel launches and hooks of sharded modules."""
    every = flops.matrices(p.shape)
    adapted = float(sum(count for count, m in every if p.adapted(m)))
    passes = p.forward + 2.0  # backward launches twice what forward does
    launches: Any = (overhead.LAYER[p.kernels] * p.shape.n_layers + overhead.ADAPTER * adapted) * passes
    if p.storage in KBIT:
        calls = sum(count * (m.active if m.role == "expert" else 1) for count, m in every)
        launches = launches + overhead.UNPACK[p.storage] * calls * (p.forward + 1.0)
    looped = p.stack.experts == "loop"
    for layer in p.shape.layers:
        launches = launches + layer.count * overhead.experts(layer, looped, p.low, p.ep) * passes
    several = np.asarray(p.s.n_gpus) > 1
    # DeepSpeed's full fine-tuning scripts run ZeRO-3 on one GPU too, those for adapters ZeRO-2 (QwenLM/Qwen:finetune)
    engine = p.stack.engine == "deepspeed" and p.trains > 0
    modules = 0.0 if _fused_lora(p) else adapted
    hooks = overhead.hooks(p.shape, p.s.sharding, engine, modules) * (p.forward + 1.0) / p.pp
    return {"launches": launches / p.pp, "hooks": np.where(several | engine, hooks, 0.0)}


def _data_parallel(p: _Plan, trained: Any) -> dict[str, Any]:
    """Bytes over the data parallel link: gathered weights, reduced gradients; and the update of the states."""
    s = p.s
    every = flops.matrices(p.shape)
    all_experts = float(sum(count * m.params for count, m in every if m.role == "expert"))
    wire = {"nf4": quant.nf4_bytes_per_weight(), "gptq": quant.gptq_bytes_per_weight(), "int8": 1.0}
    element = wire.get(p.storage, roofline.BF16)
    rest = float(p.shape.text_params) - all_experts
    whole = p.storage in KBIT and not p.stack.shards_quantised
    gathered = 0.0
    if s.sharding in GATHERS and not whole:
        per_pass = comm.ring(rest * element / p.split, p.dp)
        gathered = 2.0 * (per_pass + comm.ring(all_experts * element / p.expert_split, p.expert_dp))
    gradient = roofline.FP32 if p.kernels in ("te", "compiled") else roofline.BF16
    experts = all_experts * p.trains
    reduced = comm.ring((trained - experts) * gradient / p.split, p.dp)
    reduced = reduced + comm.ring(experts * gradient / p.expert_split, p.expert_dp)
    each = s.sharding in REDUCES_EACH
    once = 0.0 if each or s.sharding == "none" else 2.0 * reduced
    local = (trained - experts) / p.split + experts / p.expert_split
    sharded = s.sharding not in ("none", "ddp")
    update = trained / np.asarray(s.n_gpus, dtype=float) if sharded else local
    return {
        "gather_bytes": np.where(p.dp > 1, gathered + (reduced if each else 0.0), 0.0),
        "reduce_bytes": np.where(p.dp > 1, once, 0.0),
        "update_bytes": UPDATE_BYTES * update,
    }


def _model_parallel(p: _Plan) -> dict[str, Any]:
    """Bytes over the tensor, context and expert parallel links, and the bubble of the pipeline."""
    activation = p.tokens * p.shape.hidden_size * roofline.BF16
    layers = p.shape.n_layers / p.pp
    passes = p.forward + 1.0
    keys_values = sum(layer.count * layer.kv_heads * (layer.head_dim + layer.v_head_dim) for layer in p.shape.layers)
    routed: Any = 0.0
    for layer in p.shape.layers:
        active = next((m.active for m in layer.linears if m.role == "expert"), 0)
        if active:
            routed = routed + layer.count * comm.expert_parallel(activation, active, p.ep, p.islands)
    tensor = comm.tensor_parallel(activation, p.tp) * layers * passes
    return {
        "tensor_bytes": np.where(p.tp > 1, tensor, 0.0),
        "collectives": np.where(p.tp > 1, 2.0 * layers * passes, 0.0),
        "context_bytes": comm.context_parallel(p.tokens * roofline.BF16 * keys_values / p.split, p.cp) * (passes + 1.0),
        "expert_bytes": np.where(p.ep > 1, routed / p.pp * passes, 0.0),
        "bubble": comm.bubble(p.pp, p.s.grad_accum, p.s.virtual),
    }


def _offloaded(p: _Plan, trained: Any) -> dict[str, Any]:
    """Bytes over the host link: weights in and gradients out in every micro step; states and weights once per step.

    Source: ZeRO-Offload, arXiv 2101.06840 section 4.1; FSDP CPUOffload.
    """
    element = {"nf4": quant.nf4_bytes_per_weight(), "gptq": quant.gptq_bytes_per_weight(), "int8": 1.0}
    weights = float(p.shape.text_params) * element.get(p.storage, roofline.BF16) / p.dp / p.split
    states = trained * 2.0 * roofline.BF16 / p.dp / p.split
    return {
        "offload_bytes": 2.0 * weights if p.s.offload in ("params", "both") else 0.0,
        "offload_step_bytes": states if p.s.offload in ("optimizer", "both") else 0.0,
    }


def _generated(p: _Plan) -> Any:
    """Bytes that generating the rollouts of one step reads: every new token reads the active weights once for all
    sequences of this GPU, and each sequence's keys and values so far. Source: arXiv 2211.05102 section 2.1.
    """
    s = p.s
    if s.objective not in ("ppo", "grpo"):
        return 0.0
    new = s.mean_len * GENERATED
    sequences = s.micro_batch * s.grad_accum
    cache = sum(layer.count * layer.kv_heads * (layer.head_dim + layer.v_head_dim) for layer in p.shape.layers)
    context = s.mean_len * (1.0 - GENERATED / 2.0)
    return new * roofline.BF16 * (p.shape.active_params / p.split + sequences * context * cache)


def _imbalance(p: _Plan) -> Any:
    """Time of the slowest data parallel rank over the mean one's, when rows differ in length and are not packed."""
    s = p.s
    if not s.varying:
        return 1.0
    each = s.sharding in REDUCES_EACH  # ranks meet in every micro step, otherwise once per step
    rows = s.micro_batch * (1.0 if each else s.grad_accum)
    return tokens.imbalance(tokens.spread_or_usual(s.real_len, s.seq_len), rows, p.dp)


def work(shape: Shape, setting: Setting, stack: Stack, stored_quantization: str | None, domain: Any) -> Work:
    """The work of one optimizer step.

    stored_quantization: gptq or awq when the published weights are so packed. domain: GPUs that share a fast link.
    """
    p = _plan(shape, setting, stack, stored_quantization, domain)
    trained: Any = float(shape.text_params)
    if setting.adapters:
        trained = params.adapters_total(shape, setting.lora_targets, setting.lora_rank, "dora" in setting.method)
    counts = _products(p) | _operands(p) | _elementwise(p) | _unpacking(p) | _host(p) | _data_parallel(p, trained)
    counts |= _model_parallel(p) | _offloaded(p, trained)
    return Work(
        **counts,
        generate_bytes=_generated(p),
        imbalance=_imbalance(p),
        micro_steps=np.asarray(setting.grad_accum, dtype=float),
    )
