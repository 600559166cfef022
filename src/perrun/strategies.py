"""Every way to lay a job out on a rig that is valid by construction: the job's global batch is never changed."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any, cast

from perrun.facts import stacks
from perrun.facts.stacks import Stack
from perrun.terms import Job, Strategy

# What a search varies unless the user fixes it. Selective checkpointing, offload and model parallelism are offered
# only by some stacks and are taken when asked for.
CHECKPOINTING = ("none", "full")
FUSED_LOSS = (False, True)
SEVERAL = ("ddp", "fsdp2")
SEVERAL_DEEPSPEED = ("zero1", "zero2", "zero3")
CANNOT_FUSE = ("litgpt", "fsdp_qlora")


@dataclass(frozen=True, slots=True)
class Category:
    """The choices of a strategy that are no numbers."""

    checkpointing: str
    fused_ce: bool
    sharding: str


def categories(fixed: dict[str, Any], framework: str, several: bool) -> Iterator[Category]:
    """Combinations of category choices, the user's own (`fixed`) first and alone where given."""
    kind = SEVERAL_DEEPSPEED if framework == "deepspeed" else SEVERAL
    sharding = (fixed.get("sharding") or kind) if several else "none"
    yield from (
        Category(*choice)
        for choice in product(
            _options(fixed.get("checkpointing"), CHECKPOINTING),
            _options(fixed.get("fused_ce"), (False,) if framework in CANNOT_FUSE else FUSED_LOSS),
            _options(sharding, kind),
        )
    )


def _options(chosen: Any, otherwise: tuple[Any, ...]) -> tuple[Any, ...]:
    if chosen is None:
        return otherwise
    return cast(tuple[Any, ...], chosen) if isinstance(chosen, tuple) else (chosen,)


def micro_batches(job: Job, data_parallel: int, fixed: int | None) -> list[tuple[int, int]]:
    """(micro_batch, grad_accum) pairs whose product with the ranks is the job's global batch.

    Empty when the ranks do not divide it, or when the fixed micro batch does not.
    """
    share, rest = divmod(job.global_batch, data_parallel)
    if rest or not share:
        return []
    if fixed is not None:
        return [(fixed, share // fixed)] if share % fixed == 0 else []
    return [(size, share // size) for size in range(1, share + 1) if share % size == 0]


DEGREES = ("tp", "pp", "cp", "ep")


def degrees(fixed: dict[str, Any]) -> dict[str, int]:
    """The model-parallel degrees that the user fixed."""
    return {name: fixed[name] for name in DEGREES if fixed.get(name)}


def ranks_per_copy(fixed: dict[str, Any]) -> int:
    """GPUs that hold one copy of the model (expert parallel ranks see different data, so they don't count)."""
    return prod(size for name, size in degrees(fixed).items() if name != "ep")


def build(category: Category, micro_batch: int, grad_accum: int, fixed: dict[str, Any], stack: Stack) -> Strategy:
    """One strategy: the category, the two numbers, and what the user or the stack's profile says about the rest."""
    return Strategy(
        micro_batch=micro_batch,
        grad_accum=grad_accum,
        checkpointing=category.checkpointing,  # type: ignore[arg-type]
        fused_ce=category.fused_ce,
        sharding=category.sharding,  # type: ignore[arg-type]
        attention=fixed.get("attention") or stack.attention,  # type: ignore[arg-type]
        compile=bool(fixed.get("compile")),
        offload=fixed.get("offload") or "none",
        framework=stack.framework,
        **degrees(fixed),
    )


def strategies(job: Job, n_gpus: int, fixed: dict[str, Any]) -> Iterator[Strategy]:
    """All strategies for one number of GPUs, one by one: what the vectorised search covers, for reading and tests."""
    stack = stacks.get(fixed.get("framework") or "trl")
    for category in categories(fixed, stack.framework, n_gpus > 1):
        for micro, accum in micro_batches(job, n_gpus // ranks_per_copy(fixed), fixed.get("micro_batch")):
            yield build(category, micro, accum, fixed, stack)
