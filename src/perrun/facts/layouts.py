"""What each training stack offers of a strategy: kinds of checkpointing, attention, loss, sharding and splitting."""

from dataclasses import dataclass
from functools import cache

from perrun.facts import tables


@dataclass(frozen=True, slots=True)
class Layouts:
    """One row of layouts.csv; the first of each kind is the least, the last what takes the least memory.

    attention: kernels, which a card may lack. fused_ce: whether logits are stored, or never. sharding: between several
    GPUs; empty for scripts that run on one. degrees: which of tp, pp, cp and ep the stack can set.

    ZeRO is offered where the stack's profile is of DeepSpeed: its optimizer keeps fp32 weights beside bf16 ones, which
    the same scripts without it do not (zero/config.py), so that `trl` with ZeRO-3 is asked for as `deepspeed`.
    """

    framework: str
    checkpointing: tuple[str, ...]
    attention: tuple[str, ...]
    fused_ce: tuple[bool, ...]
    sharding: tuple[str, ...]
    degrees: tuple[str, ...]
    source: str


def _several(text: str) -> tuple[str, ...]:
    return tuple(text.split(";")) if text else ()


@cache
def of(framework: str) -> Layouts:
    """What a stack offers, by its name in stacks.csv. Raises KeyError for another name."""
    row = next((row for row in tables.read("layouts") if row["framework"] == framework), None)
    if row is None:
        raise KeyError(framework)
    return Layouts(
        framework=framework,
        checkpointing=_several(row["checkpointing"]),
        attention=_several(row["attention"]),
        fused_ce=tuple(word == "yes" for word in _several(row["fused_ce"])),
        sharding=_several(row["sharding"]),
        degrees=_several(row["degrees"]),
        source=row["source"],
    )
