"""Training stacks as sourced facts: what each does to memory and time when nobody asks.

The same QLoRA job takes 6 GiB on one stack and 14 on another, so the stack is an input of every estimate.
"""

from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache

from perrun.errors import UnknownName
from perrun.facts import tables


@dataclass(frozen=True, slots=True)
class Stack:
    """One row of stacks.csv: the defaults of one framework over a range of versions.

    weights_default: dtype the weights are stored in unless told (TRL: fp32!). kbit_upcast: what preparation of a
    k-bit base turns to fp32: no, norms, or all that is not quantised (norms, embeddings, head). autocast: forward
    runs under bf16 autocast also on bf16 weights. adapter_dtype: of LoRA matrices on a bf16 base. kernels: eager,
    liger, unsloth, fused, compiled, te (what the elementwise work and its saved tensors look like). loss: plain
    (all logits, fp32 copies), chunked (head over everything, loss by chunks) or fused (head and loss together,
    logits never stored). optimizer_impl: foreach (temporary copy of the states), fused or loop. quantises_experts:
    4-bit loading reaches the experts of a mixture. shards_quantised: its sharding can split a k-bit base.
    master_weights: bf16 weights with an fp32 copy in the optimizer. keeps_logits: the 16-bit logits stay alive
    beside their fp32 copies until backward. fsdp_upcasts: under FSDP with mixed precision trained parameters are
    stored in fp32 (accelerate). fsdp_retains: with frozen parameters FSDP 1 holds every layer's input and its
    gradient until backward ends. fsdp_no_sync: while gradients accumulate they are kept whole on every rank, for
    frozen parameters of a flat unit too. kbit_saves_inputs: matrices of a 4-bit base keep their inputs
    (bitsandbytes before 0.42, MatMul4Bit). experts: of a mixture run in a `loop` or as `grouped` products.
    selective: what selective checkpointing computes again: `ops` (every second product) or `attention`.
    document_mask: packed rows do not see each other. engine: deepspeed where its hooks run round every module.
    attention_kernel: flash1 where a stack's flash attention is that old.
    adapts_experts: all-linear LoRA reaches fused expert tensors (peft from 0.18 on, families that it converts).
    extra_pools: its loop leaves several times the usual blocks with the allocator (measured, not explained).
    """

    framework: str
    versions: str
    label: str
    weights_default: str
    kbit_upcast: str
    autocast: bool
    adapter_dtype: str
    lora_dropout: float
    kernels: str
    loss: str
    attention: str
    checkpointing: str
    reentrant: bool
    optimizer_impl: str
    optimizer: str
    seq_len: int
    micro_batch: int
    lora_rank: int
    lora_targets: str
    saves_eval: bool
    quantises_experts: bool
    shards_quantised: bool
    master_weights: bool
    keeps_logits: bool
    fsdp_upcasts: bool
    fsdp_retains: bool
    fsdp_no_sync: bool
    kbit_saves_inputs: bool
    adapts_experts: bool
    extra_pools: bool
    experts: str
    selective: str
    document_mask: bool
    engine: str
    attention_kernel: str
    source: str


YES_NO = (
    "autocast",
    "reentrant",
    "saves_eval",
    "quantises_experts",
    "shards_quantised",
    "master_weights",
    "keeps_logits",
    "fsdp_upcasts",
    "fsdp_retains",
    "fsdp_no_sync",
    "kbit_saves_inputs",
    "adapts_experts",
    "extra_pools",
    "document_mask",
)


def _stack(row: dict[str, str]) -> Stack:
    yes = {name: row[name] == "yes" for name in YES_NO}
    whole = {name: int(row[name]) for name in ("seq_len", "micro_batch", "lora_rank")}
    text = {
        name: row[name] for name in Stack.__slots__ if name not in yes and name not in whole and name != "lora_dropout"
    }
    return Stack(**text, **yes, **whole, lora_dropout=float(row["lora_dropout"]))  # type: ignore[arg-type]


@cache
def _by_name() -> dict[str, Stack]:
    found: dict[str, Stack] = {}
    for row in tables.read("stacks"):
        stack = _stack(row)
        for name in (row["framework"], *row["aliases"].split(";")):
            found.setdefault(name.strip().lower(), stack)
    return found


def get(framework: str) -> Stack:
    """The profile of a framework by its name or alias. Raises UnknownName with the nearest names."""
    known = _by_name()
    stack = known.get(framework.strip().lower())
    if stack is None:
        near = get_close_matches(framework.lower(), list(known), n=3, cutoff=0.5)
        raise UnknownName(
            f"unknown framework {framework!r}",
            expected="one of " + ", ".join(sorted({s.framework for s in known.values()})),
            hint=f"did you mean {' or '.join(near)}?" if near else "perrun estimate without --framework assumes trl",
        )
    return stack


def all_stacks() -> tuple[Stack, ...]:
    return tuple({stack.framework: stack for stack in _by_name().values()}.values())


def names() -> tuple[str, ...]:
    """Every name and alias, in small letters."""
    return tuple(_by_name())
