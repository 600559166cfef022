"""What a question rests on: the job and the layout as the user said them, and the offers that are known."""

from datetime import date
from functools import lru_cache
from pathlib import Path
from typing import Any

from perrun.errors import InvalidInput
from perrun.terms import Job, Model, Offer, Rig, Strategy

SHORTEST_CAP = 512


def job(model: str, given: dict[str, Any] | None = None) -> tuple[Job, Model]:
    """The job by what the user said, and the model's facts.

    Unless said, rows are capped at the next power of two at or above their mean (at least 512, at most what the
    model can see). Raises what the facts raise, and pydantic's ValidationError for a number out of bounds.
    """
    from perrun.facts import models

    found = models.get(model)
    values = dict(given or {})
    if values.get("method") == "freeze":
        trained = "full, lora, qlora, lora-int8, dora, qdora"
        raise InvalidInput("perrun has no law for method freeze: how many layers train is not said", expected=trained)
    mean, longest = values.get("tokens_per_example"), values.get("longest_example")
    if mean and longest and longest < mean:
        raise InvalidInput(f"longest_example {longest} is below the mean", expected=f"at least {mean} tokens")
    if "seq_len" not in values:
        mean = values.get("longest_example") or values.get("tokens_per_example") or Job.model_fields["seq_len"].default
        cap = max(SHORTEST_CAP, 1 << (max(int(mean), 1) - 1).bit_length())
        sees = found.max_position_embeddings
        values["seq_len"] = min(cap, sees) if sees and mean <= sees else min(cap, 2**24)
    return Job(model=model, **values), found


def layout(asked: Job, rig: Rig, given: dict[str, Any] | None = None) -> Strategy:
    """A strategy for one rig by what the user said, the rest by the stack's profile; the global batch is kept.

    Raises InvalidInput when the ranks and the micro batch do not divide the global batch, and for several GPUs and a
    stack that runs on one.
    """
    from perrun.facts import gpus, layouts, stacks
    from perrun.strategies import kernels

    values = dict(given or {})
    stack = stacks.get(values.get("framework") or "trl")
    values["framework"] = stack.framework
    values.setdefault("attention", kernels(stack, gpus.get(rig.gpu), {})[0])
    values.setdefault("checkpointing", stack.checkpointing)
    values.setdefault("fused_ce", stack.loss == "fused")
    offered = layouts.of(stack.framework).sharding
    if rig.n_gpus > 1 and "sharding" not in values:
        if not offered:
            raise InvalidInput(f"{stack.label} runs on one GPU", hint="--n-gpus 1, or another --framework")
        values["sharding"] = offered[-1]  # what takes the least memory
    copies = rig.n_gpus // (values.get("tp", 1) * values.get("pp", 1) * values.get("cp", 1))
    share, rest = divmod(asked.global_batch, max(copies, 1))
    if rest or not share:
        raise InvalidInput(
            f"global_batch {asked.global_batch} cannot be shared evenly by {copies} data-parallel GPUs",
            expected=f"a multiple of {copies}",
        )
    micro = values.setdefault("micro_batch", min(share, 1))
    if share % micro:
        raise InvalidInput(
            f"micro_batch {micro} does not divide the {share} sequences that each GPU has per step",
            expected=", ".join(str(n) for n in range(1, share + 1) if share % n == 0),
        )
    return Strategy(**values, grad_accum=share // micro)


def checked(given: dict[str, Any] | None) -> dict[str, Any]:
    """What the user fixed of the strategy. Raises pydantic's ValidationError for what no strategy can be."""
    values = dict(given or {})
    Strategy(**values)
    return values


def check_rig(rig: Rig) -> None:
    """Raises InvalidInput for a link that the card has not."""
    if rig.n_gpus > 1 and rig.interconnect in ("nvlink", "pcie"):
        from perrun.facts import gpus, links

        links.link(gpus.get(rig.gpu), rig.interconnect)


def offers(prices: str | Path | None = None, as_of: date | None = None) -> list[Offer]:
    """Offers of the user's own price file, or of the shipped snapshot as it was known on a day."""
    from perrun.prices import snapshot

    if prices is not None:
        return [o for o in snapshot.load(prices) if as_of is None or o.observed_at <= as_of]
    return list(_current(state_of_prices())) if as_of is None else snapshot.offers(as_of)


def state_of_prices() -> tuple[Any, ...]:
    """Changes whenever the current offers do: what the book last published, by place, time and size."""
    from perrun.prices import place

    file = place.published(place.book_url())
    try:
        seen = file.stat()
    except OSError:
        return (file,)
    return (file, seen.st_mtime_ns, seen.st_size, seen.st_ino)


@lru_cache(1)
def _current(_: tuple[Any, ...]) -> tuple[Offer, ...]:
    """Read once while prices stay: a fifth of the time of a plan that a server is asked for."""
    from perrun.prices import snapshot

    return tuple(snapshot.offers())


def home(name: str) -> str:
    """Whether a setting is of the job, of the strategy or of the wish. Raises InvalidInput for none of them."""
    from dataclasses import fields

    from perrun.planner import Wish

    homes = {
        "job": set(Job.model_fields) - {"model"},
        "strategy": set(Strategy.model_fields),
        "wish": {field.name for field in fields(Wish)} - {"fixed", "limit"},
    }
    for home, names in homes.items():
        if name in names:
            return home
    every = sorted(name for names in homes.values() for name in names)
    raise InvalidInput(f"{name!r} is no setting", expected=", ".join(every))
