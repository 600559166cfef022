"""When a job does not fit: the least costly changes that make it fit; and the largest job that still does."""

from collections.abc import Iterator
from itertools import combinations
from typing import Any

from perrun import estimator
from perrun.errors import InvalidInput, NothingFits
from perrun.estimator import MIN_FIT
from perrun.facts import layouts, stacks
from perrun.terms import Job, Model, Remedy, Rig, Strategy

LARGEST = ("seq_len", "micro_batch", "rank")
_CAP = {"seq_len": 2**20, "micro_batch": 2**14, "rank": 2**12}


def _changes(job: Job, strategy: Strategy, rig: Rig) -> list[dict[str, Any]]:
    """Single changes of the strategy that may save memory; none of them changes the loss curve."""
    offered = layouts.of(stacks.get(strategy.framework).framework)
    changes: list[dict[str, Any]] = [
        {"checkpointing": kind} for kind in _beyond(strategy.checkpointing, offered.checkpointing)
    ]
    if not strategy.fused_ce and True in offered.fused_ce:
        changes.append({"fused_ce": True})
    size = strategy.micro_batch
    while size % 2 == 0:
        size //= 2
        changes.append({"micro_batch": size, "grad_accum": strategy.grad_accum * strategy.micro_batch // size})
    if rig.n_gpus > 1:
        changes += [{"sharding": kind} for kind in _beyond(strategy.sharding, offered.sharding)]
    if strategy.offload == "none":
        if job.method == "full":
            changes.append({"offload": "optimizer"})
        changes.append({"offload": "both"})
    return changes


def _beyond(now: str, offered: tuple[str, ...]) -> tuple[str, ...]:
    """What a stack offers that takes less memory than what is chosen."""
    return offered[offered.index(now) + 1 :] if now in offered else ()


def _together(changes: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """One change alone, then two and three of different fields together."""
    for number in (1, 2, 3):
        for some in combinations(changes, number):
            fields = [name for change in some for name in change]
            if len(fields) == len(set(fields)):
                yield {name: value for change in some for name, value in change.items()}


def remedies(job: Job, strategy: Strategy, rig: Rig, model: Model, limit: int = 3) -> list[Remedy]:
    """Changes of strategy with which the job fits, the fastest first; none when it fits as it is, or not at all.

    A set of changes is listed only if no part of it suffices. Raises what `estimator.ask` raises.
    """
    before = estimator.figures(estimator.ask(job, strategy, rig, model))
    if float(before.fits) >= MIN_FIT:
        return []
    found: list[Remedy] = []
    for change in _together(_changes(job, strategy, rig)):
        if any(earlier.change.items() <= change.items() for earlier in found):
            continue
        after = estimator.figures(estimator.ask(job, strategy.model_copy(update=change), rig, model))
        if float(after.fits) < MIN_FIT:
            continue
        found.append(
            Remedy(
                change=change,
                device_gib=float(after.device) / estimator.GIB,
                fits_probability=float(after.fits),
                tokens_per_s=float(after.tokens_per_s),
                slower=float(before.tokens_per_s / after.tokens_per_s),
            )
        )
    return sorted(found, key=lambda r: r.slower)[:limit]


def largest(what: str, job: Job, strategy: Strategy, rig: Rig, model: Model) -> int:
    """The largest seq_len, micro_batch or LoRA rank with which the job fits, by bisection (memory rises with each).

    seq_len comes out as a multiple of 64. Raises InvalidInput for another name and NothingFits when not even the
    smallest fits.
    """
    if what not in LARGEST:
        raise InvalidInput(f"cannot look for the largest {what!r}", expected=", ".join(LARGEST))
    step = 64 if what == "seq_len" else 1
    high = _CAP[what]
    if what == "seq_len" and model.max_position_embeddings:
        high = min(high, model.max_position_embeddings)
    low, high = 0, high // step

    def fits(units: int) -> bool:
        asked = estimator.ask(*_with(what, units * step, job, strategy), rig, model)
        return float(estimator.figures(asked).fits) >= MIN_FIT

    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle):
            low = middle
        else:
            high = middle - 1
    if low == 0:
        raise NothingFits(f"no {what} fits on {rig}", hint="try --checkpointing full or --fused-ce")
    return low * step


def _with(what: str, value: int, job: Job, strategy: Strategy) -> tuple[Job, Strategy]:
    if what == "micro_batch":
        return job, strategy.model_copy(update={"micro_batch": value})
    if what == "seq_len":
        return job.model_copy(update={"seq_len": value, "longest_example": None}), strategy
    return job.model_copy(update={"lora_rank": value}), strategy
