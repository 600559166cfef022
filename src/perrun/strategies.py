"""Every way to lay a job out on a rig that is valid by construction: the job's global batch is never changed.

What a stack offers is in facts/layouts.csv. What a kernel, a method or a shape forbids is ruled out here, so that
nothing has to be filtered later. Offload is taken when asked for (the planner asks when nothing else fits).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product
from math import isqrt, prod
from typing import Any, NamedTuple, cast

from perrun.facts import gpus, layouts, models, stacks
from perrun.facts.stacks import Stack
from perrun.shapes import Shape
from perrun.terms import GPU, Job, Rig, Strategy

DEGREES = ("tp", "pp", "cp", "ep")
KBIT = ("qlora", "qdora", "lora-int8")  # bitsandbytes cannot split a packed matrix between ranks
# Tokens of a sequence that each rank keeps at least where a search splits it: shorter pieces only wait for each other.
LEAST_PIECE = 4096
FLASH2_FROM = 8.0  # compute capability (FlashAttention README: Ampere, Ada or Hopper)


@dataclass(frozen=True, slots=True)
class Category:
    """The choices of a strategy that are no numbers."""

    checkpointing: str
    fused_ce: bool
    sharding: str
    attention: str


class Split(NamedTuple):
    """The choices that are numbers: degrees of parallelism, and how a rank takes its share of the global batch."""

    tp: int
    pp: int
    cp: int
    ep: int
    micro_batch: int
    grad_accum: int


def categories(stack: Stack, fixed: dict[str, Any], several: bool, kernels: tuple[str, ...]) -> list[Category]:
    """Combinations of what the stack offers; the user's own (`fixed`) alone where given. kernels: of attention."""
    offered = layouts.of(stack.framework)
    sharding = _options(fixed.get("sharding"), offered.sharding) if several else ("none",)
    return [
        Category(*choice)
        for choice in product(
            _options(fixed.get("checkpointing"), offered.checkpointing),
            _options(fixed.get("fused_ce"), offered.fused_ce),
            sharding,
            kernels,
        )
    ]


def _options(chosen: Any, otherwise: tuple[Any, ...]) -> tuple[Any, ...]:
    if chosen is None:
        return otherwise
    return cast(tuple[Any, ...], chosen) if isinstance(chosen, tuple) else (chosen,)


def runs_on(kernel: str, gpu: GPU) -> bool:
    """Whether a card has what an attention kernel needs (FlashAttention README and its hopper/README)."""
    if kernel == "flash3":
        return gpu.architecture == "Hopper"
    if kernel == "flash2":
        return (gpu.compute_capability or FLASH2_FROM) >= FLASH2_FROM  # not known: AMD's, which its ROCm port runs on
    return True


def kernels(stack: Stack, gpu: GPU, fixed: dict[str, Any]) -> tuple[str, ...]:
    """Kernels of attention to choose from on a card: the stack's own, or the first offered one that the card can run,
    and FlashAttention-3. Others are as fast as the stack's own by every law here, so they are no choice.
    """
    if fixed.get("attention"):
        return (fixed["attention"],)
    possible = [kernel for kernel in (stack.attention, *layouts.of(stack.framework).attention) if runs_on(kernel, gpu)]
    return tuple(dict.fromkeys((*possible[:1], *(kernel for kernel in possible if kernel == "flash3"))))


def degrees(fixed: dict[str, Any]) -> dict[str, int]:
    """The model-parallel degrees that the user fixed."""
    return {name: fixed[name] for name in DEGREES if fixed.get(name)}


def ranks_per_copy(fixed: dict[str, Any]) -> int:
    """GPUs that hold one copy of the model (expert parallel ranks see different data, so they don't count)."""
    return prod(size for name, size in degrees(fixed).items() if name != "ep")


@dataclass(frozen=True, slots=True)
class Limits:
    """What a model and a job allow of each degree: whether it divides what it splits."""

    tp: tuple[int, ...]
    pp: tuple[int, ...]
    cp: tuple[int, ...]
    ep: tuple[int, ...]


def limits(job: Job, shape: Shape, stack: Stack) -> Limits:
    """Powers of two that divide heads and key-value heads (tp), layers (pp), a sequence (cp) and experts (ep).

    Source: Megatron-LM, megatron/core/transformer/transformer_config.py (heads, query groups, layers, experts must be
    multiples); a causal sequence is cut into twice as many pieces as ranks (Megatron context parallelism).
    """
    offered = layouts.of(stack.framework).degrees
    attention = [layer for layer in shape.layers if layer.mixer in ("attention", "mla")]
    heads = [n for layer in attention for n in (layer.heads, layer.kv_heads)]
    experts = [m.copies for layer in shape.layers for m in layer.linears if m.role == "expert"]
    splits_weights = job.method not in KBIT
    pieces = _powers("cp" in offered and job.seq_len % 2 == 0, [job.seq_len // 2])
    return Limits(
        tp=_powers("tp" in offered and splits_weights and bool(heads), heads),
        pp=_powers("pp" in offered and splits_weights, [shape.n_layers]),
        cp=tuple(n for n in pieces if n == 1 or job.seq_len // n >= LEAST_PIECE),
        ep=_powers("ep" in offered and splits_weights and bool(experts), experts),
    )


def _powers(offered: bool, multiples: list[int]) -> tuple[int, ...]:
    """Powers of two that divide all of some numbers; 1 alone where the degree is not offered."""
    if not offered:
        return (1,)
    return tuple(n for n in (2**power for power in range(11)) if all(number % n == 0 for number in multiples))


def splits(job: Job, allowed: Limits, rig: Rig, fixed: dict[str, Any]) -> tuple[Split, ...]:
    """Every split of the job over the GPUs of a rig: ranks and micro batches multiply to the global batch.

    Empty when the ranks do not divide it, or when the fixed micro batch does not. Tensor parallel ranks share a node
    (its links are many times faster); expert parallel ones see different data, so they are some of the copies.
    """
    most = {"tp": rig.n_gpus // rig.n_nodes}
    choices = [
        (fixed[name],) if fixed.get(name) else [n for n in getattr(allowed, name) if n <= most.get(name, rig.n_gpus)]
        for name in DEGREES
    ]
    found: list[Split] = []
    for tp, pp, cp, ep in product(*choices):
        copies, rest = divmod(rig.n_gpus, tp * pp * cp)
        if not rest and (copies % ep == 0 or fixed.get("ep")):
            pairs = micro_batches(job.global_batch, copies, fixed.get("micro_batch"))
            found += [Split(tp, pp, cp, ep, *pair) for pair in pairs]
    return tuple(found)


@cache
def micro_batches(global_batch: int, data_parallel: int, fixed: int | None) -> tuple[tuple[int, int], ...]:
    """(micro_batch, grad_accum) pairs whose product with the ranks is the global batch; none where it has no share."""
    share, rest = divmod(global_batch, data_parallel)
    if rest or not share:
        return ()
    if fixed is not None:
        return ((fixed, share // fixed),) if share % fixed == 0 else ()
    small = [size for size in range(1, isqrt(share) + 1) if share % size == 0]
    return tuple((size, share // size) for size in sorted({*small, *(share // size for size in small)}))


def build(category: Category, split: Split, fixed: dict[str, Any], stack: Stack) -> Strategy:
    """One strategy: the category, the numbers, and what the user or the stack's profile says about the rest."""
    return Strategy(
        **split._asdict(),
        checkpointing=category.checkpointing,  # type: ignore[arg-type]
        fused_ce=category.fused_ce,
        sharding=category.sharding,  # type: ignore[arg-type]
        attention=category.attention,  # type: ignore[arg-type]
        compile=bool(fixed.get("compile")),
        offload=fixed.get("offload") or "none",
        framework=stack.framework,
    )


def strategies(job: Job, rig: Rig, fixed: dict[str, Any] | None = None) -> Iterator[Strategy]:
    """All strategies of a job on a rig, one by one: what the vectorised search covers, for reading and for tests.

    fixed: settings that are not varied, by their field names. None for several GPUs and a stack that runs on one, or
    where the ranks cannot share the global batch. Raises what `facts` raise for names.
    """
    chosen = fixed or {}
    stack, gpu, shape = stacks.get(chosen.get("framework") or "trl"), gpus.get(rig.gpu), models.get(job.model).shape
    allowed = limits(job, shape, stack)
    for category in categories(stack, chosen, rig.n_gpus > 1, kernels(stack, gpu, chosen)):
        for split in splits(job, allowed, rig, chosen):
            yield build(category, split, chosen, stack)
