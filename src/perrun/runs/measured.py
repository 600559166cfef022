"""What a run measured, in units, and which of it can be held against a prediction."""

from dataclasses import dataclass

from perrun.errors import InvalidInput
from perrun.runs import notes as say
from perrun.runs.cells import Row
from perrun.runs.lengths import Lengths
from perrun.runs.notes import Variant
from perrun.setting import Setting
from perrun.terms import Rig
from perrun.units import GB, GIB


@dataclass(frozen=True, slots=True)
class Measured:
    """What a run reported. Memory per GPU in GiB; tokens_per_s over all GPUs; None: not published.

    nvidia_smi_gib, allocated_gib and training_reserved_gib are further figures that the notes give beside the
    row's own; training_reserved_gib is the 99th percentile over training steps, without evaluations.
    """

    peak_mem_gib: float | None
    mem_kind: str
    outcome: str
    tokens_per_s: float | None
    nvidia_smi_gib: float | None = None
    allocated_gib: float | None = None
    training_reserved_gib: float | None = None


def measured(row: Row, setting: Setting) -> Measured:
    """The measured figures in units. Raises InvalidInput for a cell that is none."""
    peak = row.number("peak_mem_gb")
    unit = row.cell("mem_unit")
    if peak is not None and unit not in ("GB", "GiB"):
        unit = row.fill("mem_unit", "GB")
    outcome = row.cell("outcome").lower()
    if outcome not in ("", "ok", "oom"):
        raise InvalidInput(f"outcome {outcome!r} is neither ok nor oom")
    return Measured(
        peak_mem_gib=peak * GB / GIB if peak is not None and unit == "GB" else peak,
        mem_kind=row.cell("mem_kind").lower() or ("unknown" if peak is not None else ""),
        outcome=outcome,
        tokens_per_s=_tokens_per_s(row, setting),
        nvidia_smi_gib=say.nvidia_smi_gib(row.notes),
        allocated_gib=say.allocated_gib(row.notes),
        training_reserved_gib=say.training_reserved_gib(row.notes),
    )


def _tokens_per_s(row: Row, setting: Setting) -> float | None:
    """As published, else by arithmetic where every sequence has exactly seq_len tokens."""
    published = row.number("tokens_per_s")
    exact = setting.packing or "exact-seq" in say.tags(row.notes)
    if published is not None or not exact or "truncated" in row.notes:
        return published
    samples = row.number("samples_per_s")
    if samples is not None:
        return samples * float(setting.seq_len)
    step = row.number("step_time_s")
    if step is None:
        return None
    per_step = setting.micro_batch * setting.data_parallel * setting.seq_len
    if "per micro step" not in row.notes.lower():
        per_step = per_step * setting.grad_accum
    return float(per_step) / step


def unpredictable(row: Row) -> frozenset[str]:
    """Of memory, speed and fit, what hangs on something that the row does not state at all."""
    found: set[str] = set()
    if row.number("seq_len") is None:
        found |= {"memory", "fit"}
    if "gpu" in row.assumed:
        found |= {"speed", "fit"}
    if "usable_gib" in row.assumed:
        found.add("fit")
    return frozenset(found)


def unscored(row: Row, lengths: Lengths, rig: Rig, variant: Variant) -> dict[str, str]:
    """Of memory, speed and fit, whose measured figure does not belong to these settings, and why."""
    found = say.doubts(row.notes)
    if not lengths.longest_known:
        found["memory"] = found["fit"] = "the longest sequence is not stated"
    if not lengths.mean_known:
        found["speed"] = lengths.why_mean
    if "gpu" in row.assumed:
        found["speed"] = found["fit"] = "the GPU is not stated"
    if variant.power_limited and rig.power_limit_w is None:
        found.setdefault("speed", "the card's power is limited to what is not stated")
    if "usable_gib" in row.assumed:
        found.setdefault("fit", "the usable memory of the card is not known")
    if "sharding" in row.assumed and rig.n_gpus > 1 and row.cell("sharding") == "":
        found.setdefault("memory", "the sharding is not stated")
    return found
