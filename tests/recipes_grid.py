"""Plans to write out: per target a sample of what it can express, in which every word that it can express occurs."""

import random
from collections.abc import Iterator
from functools import cache
from itertools import islice
from typing import Any

from pydantic import ValidationError

from perrun import recipes
from perrun.facts import models
from perrun.recipes import tables
from perrun.recipes.order import Order
from perrun.terms import Job, Rig, Strategy

MODELS = ("meta-llama/Llama-3.1-8B", "Qwen/Qwen2.5-7B", "google/gemma-2-9b", "mistralai/Mistral-7B-v0.3")
TARGETS = ("all-linear", "attn", "attn-qv", "q_proj,down_proj")
PER_TARGET = 60
JOBS = {
    "method": ("full", "lora", "qlora", "lora-int8", "dora", "qdora"),
    "objective": ("sft", "pretrain", "dpo", "orpo", "kto", "rm", "grpo"),
    "precision": ("bf16-true", "bf16-mixed", "fp16-mixed", "fp32", "fp8", "mxfp8"),
    "optimizer": ("adamw", "adamw-8bit", "paged-adamw-8bit", "paged-adamw-32bit", "adamw-4bit", "adafactor", "sgd",
                  "lion", "lion-8bit"),
    "lora_rank": (8, 64),
    "lora_targets": TARGETS,
    "epochs": (1, 2.0, 3),
    "seq_len": (512, 2048, 4096),
    "packing": (True, False),
}  # fmt: skip
STRATEGIES = {
    "micro_batch": (1, 2, 4),
    "grad_accum": (1, 3, 8),
    "checkpointing": ("none", "full", "unsloth"),
    "attention": ("eager", "sdpa", "flash2", "flash3", "te"),
    "fused_ce": (False, True),
    "compile": (False, True),
    "offload": ("none", "optimizer", "params", "both"),
    "sharding": ("none", "ddp", "zero1", "zero2", "zero3", "fsdp", "fsdp2"),
    "tp": (1, 1, 1, 2),
    "cp": (1, 1, 1, 2),
    "pp": (1, 1, 1, 1, 2),
}
RIGS = ((1, 1), (2, 1), (8, 1), (16, 2))


def plans(target: str, seed: int = 0) -> Iterator[Order]:
    """Plans that a target can express, in random order, without end."""
    chance = random.Random(f"{target} {seed}")
    row = tables.target(target)
    while True:
        job: dict[str, Any] = {name: chance.choice(_expressible(row, name, JOBS)) for name in JOBS}
        strategy: dict[str, Any] = {name: chance.choice(_expressible(row, name, STRATEGIES)) for name in STRATEGIES}
        n_gpus, n_nodes = chance.choice([rig for rig in RIGS if rig[0] <= (row.max_gpus or rig[0])])
        copies = n_gpus // (strategy["tp"] * strategy["cp"] * strategy["pp"])
        if copies < 1:
            continue
        job["global_batch"] = strategy["micro_batch"] * strategy["grad_accum"] * copies
        try:
            order = Order(
                Job(model=chance.choice(MODELS), **job),
                Strategy(**strategy, framework=row.framework),
                Rig(gpu="H100-SXM-80GB", n_gpus=n_gpus, n_nodes=n_nodes),
                models.get(MODELS[0]),
            )
        except ValidationError:
            continue
        model = models.get(order.job.model)
        order = Order(order.job, order.strategy, order.rig, model)
        if not recipes.reasons(target, order):
            yield order


def _expressible(row: tables.Target, field: str, words: dict[str, tuple[Any, ...]]) -> list[Any]:
    """Words of a field that a target can express: all of them where it says nothing of the field."""
    can = row.can.get(field, frozenset((tables.ANY,)))
    return [word for word in words[field] if tables.ANY in can or word in can]


@cache
def sample(target: str) -> list[Order]:
    """A sample in which every word that the target can express occurs, and at least PER_TARGET plans."""
    row = tables.target(target)
    missing = {(field, word) for field, words in row.can.items() for word in words - {tables.ANY}}
    found: list[Order] = []
    for order in islice(plans(target), 20_000):
        fields = {**order.job.model_dump(), **order.strategy.model_dump()}
        news = {(field, fields[field]) for field in row.can} & missing
        if news or len(found) < PER_TARGET:
            found.append(order)
            missing -= news
        elif not missing:
            return found
    raise AssertionError(f"{target} never wrote {sorted(missing)}: it refuses what its row says that it can")
