"""What a recipe is written for, and why a target may refuse it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import yaml

from perrun.errors import InvalidInput
from perrun.recipes import tables
from perrun.recipes.tables import CHOICES, Target
from perrun.terms import Job, Model, Rig, Strategy

DATA = "data.jsonl"
KBIT = ("qlora", "qdora", "lora-int8")
FP8 = ("fp8", "mxfp8")
ZERO = ("zero1", "zero2", "zero3")
BITSANDBYTES = ("paged-adamw-8bit", "paged-adamw-32bit", "lion-8bit")
LEARNING_RATES = {"full": 2e-5, "adapters": 2e-4, "dpo": 5e-6, "kto": 5e-6, "orpo": 8e-6, "grpo": 1e-6, "ppo": 1e-5}


@dataclass(frozen=True, slots=True)
class Order:
    """A job laid out on a rig, the model's facts, and where the rows are read and the result is written."""

    job: Job
    strategy: Strategy
    rig: Rig
    model: Model
    data: str = DATA
    out: str = "out"
    steps: int | None = None

    @property
    def kbit(self) -> bool:
        return self.job.method in KBIT

    @property
    def learning_rate(self) -> float:
        """A usual one for the kind of run; it changes neither memory nor time."""
        kind = "adapters" if self.job.adapters else "full"
        return LEARNING_RATES.get(self.job.objective, LEARNING_RATES[kind])

    @property
    def gpus_per_node(self) -> int:
        return self.rig.n_gpus // self.rig.n_nodes

    @property
    def local_data(self) -> bool:
        """Whether the rows lie in a file, rather than on the hub."""
        return self.data.rpartition(".")[2] in ("jsonl", "json", "parquet", "csv")


def refusals(order: Order, target: Target) -> list[str]:
    """Everything of a plan that a target cannot express, in words."""
    job, strategy = order.job, order.strategy
    said: dict[str, Any] = {**job.model_dump(include=set(CHOICES)), **strategy.model_dump(include=set(CHOICES))}
    found = [
        f"{field} {said[field]}" for field in CHOICES if said[field] not in target.can[field] and target.states(field)
    ]
    if strategy.fused_ce and not target.fused_ce & {job.objective, "always", "yes", tables.ANY}:
        found.append(f"a fused loss for {job.objective}")
    if not strategy.fused_ce and target.fused_ce == frozenset(("always",)):
        found.append("a loss that is not fused")
    if strategy.compile and not target.compile & {"yes", tables.ANY}:
        found.append("torch.compile")
    found += [
        f"{degree} {getattr(strategy, degree)}"
        for degree in ("tp", "pp", "cp", "ep")
        if getattr(strategy, degree) > 1 and degree not in target.degrees
    ]
    if target.max_gpus is not None and order.rig.n_gpus > target.max_gpus:
        found.append(f"{order.rig.n_gpus} GPUs")
    return found + _everywhere(order)


def _everywhere(order: Order) -> list[str]:
    """Combinations that fail in every stack, whatever its parser says."""
    job, strategy, found = order.job, order.strategy, list[str]()
    sharded = strategy.sharding not in ("none", "ddp")
    if job.precision in FP8 and order.kbit:
        found.append(f"{job.precision} on a {job.method} base, whose matrices are already quantised")
    if strategy.sharding == "fsdp2" and job.optimizer in BITSANDBYTES:
        # bitsandbytes' states are no DTensors; torchao's 8-bit and 4-bit AdamW are
        found.append(f"{job.optimizer} under fsdp2")
    if strategy.sharding == "fsdp" and strategy.offload == "both" and job.optimizer in (*BITSANDBYTES, "adamw-8bit"):
        found.append(f"{job.optimizer} under fsdp with offload: its kernels run on the GPU alone")
    if strategy.offload != "none" and not sharded:
        found.append(f"offload {strategy.offload} without sharding")
    if strategy.offload in ("params", "optimizer") and strategy.sharding in ("fsdp", "fsdp2"):
        found.append(f"offload {strategy.offload} alone under {strategy.sharding}, which moves both or neither")
    if strategy.offload in ("params", "both") and strategy.sharding in ("zero1", "zero2"):
        found.append(f"offload {strategy.offload} under {strategy.sharding}, which splits no parameters")
    if order.rig.n_gpus == 1 and strategy.sharding not in ("none", *ZERO):
        found.append(f"{strategy.sharding} on one GPU")
    if order.rig.n_gpus > 1 and strategy.sharding == "none":
        found.append(f"{order.rig.n_gpus} GPUs without sharding")
    if job.precision == "bf16-mixed" and strategy.sharding in ZERO:
        found.append("bf16-mixed under ZeRO, which stores weights in bf16 and keeps an fp32 copy: that is bf16-true")
    if job.packing and job.objective not in ("sft", "pretrain"):
        found.append(f"packing of {job.objective} rows")
    return found


def check(reasons: list[str], target: Target, able: Callable[[], list[str]]) -> None:
    """Raises InvalidInput with the reasons, and the targets that can, when a target cannot express a plan."""
    if not reasons:
        return
    others = able()
    raise InvalidInput(
        f"{target.name} cannot express {', '.join(reasons)}",
        expected=f"one of {', '.join(others)}" if others else "another strategy or job: no target can",
        hint="perrun recipe --target NAME, or other settings" if others else "change what is named above",
    )


def lora_modules(order: Order) -> list[str]:
    """Module names that a word for LoRA targets means in this model; empty for all-linear."""
    from perrun.physics.params import targeted

    if order.job.lora_targets == "all-linear":
        return []
    found: dict[str, None] = {}
    for layer in order.model.shape.layers:
        for linear in layer.linears:
            if targeted(linear, order.job.lora_targets):
                found[linear.name] = None
    return list(found)


def as_yaml(settings: dict[str, Any], header: str) -> str:
    """Settings in their order, under a line that says what they are for."""
    body = yaml.safe_dump(settings, sort_keys=False, allow_unicode=True, width=110)
    return f"# {header}\n{body}"


def header(order: Order) -> str:
    """One line that says what a file was written for."""
    job = order.job
    return (
        f"perrun: {job.method} {job.objective} of {job.model} on {order.rig}; {job.examples:,} rows, "
        f"{job.tokens_per_example:,} tokens each, {job.epochs:g} epochs"
    )


def assumed(order: Order) -> list[str]:
    """What a recipe fixes that the plan does not ask for."""
    lines = [f"learning rate {order.learning_rate:g}: usual for such a run, yours to set; it changes no cost"]
    if order.job.adapters:
        lines.append("lora_alpha is twice the rank, dropout 0")
    if order.data == DATA:
        lines.append(f"rows are read from {DATA} beside these files: {rows_look_like(order.job.objective)}")
    return lines


def rows_look_like(objective: str) -> str:
    """One row of a data set, as the stacks want it."""
    if objective in ("dpo", "orpo", "rm"):
        return '{"prompt": [...], "chosen": [...], "rejected": [...]}, each a list of messages'
    if objective == "kto":
        return '{"prompt": [...], "completion": [...], "label": true}'
    if objective in ("grpo", "ppo"):
        return '{"prompt": [...]}'
    if objective == "pretrain":
        return '{"text": "..."}'
    return '{"messages": [{"role": "user", "content": "..."}, ...]}'
