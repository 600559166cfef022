"""From a measured row to what the laws read: job, strategy, rig, numbers, and what was measured, in units.

What the row leaves out is filled by the stack's profile and listed in `assumed`; what would have to be guessed makes
the row Skipped, or leaves one figure unscored, with the reason.
"""

from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from pydantic import ValidationError

from perrun import setting as numbers
from perrun.errors import InvalidInput, PerrunError, UnknownName
from perrun.facts import gpus, models, stacks
from perrun.facts.stacks import Stack
from perrun.runs import notes as say
from perrun.runs import spellings
from perrun.runs.adjust import adjusted
from perrun.runs.notes import Variant
from perrun.runs.table import OVERFLOW
from perrun.setting import Setting
from perrun.terms import GPU, Job, Model, Rig, Run, Strategy
from perrun.units import GB, GIB

# Stands in where a row names no card: memory hardly depends on it. Most measured rows were taken on it.
STAND_IN_GPU = "A100-SXM4-80GB"
ADAPTER_METHODS = ("lora", "qlora", "lora-int8", "dora", "qdora")


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


@dataclass(frozen=True, slots=True)
class Skipped:
    """A row that cannot be predicted, and why."""

    run: Run
    reason: str


@dataclass(frozen=True, slots=True)
class Settings:
    """A measured run as a question to the laws, and the answer that was measured.

    assumed: settings that the row leaves out, as the stack's profile fills them. unscored: of 'memory', 'speed' and
    'fit', those whose measured figure does not belong to these settings, with the reason. unpredictable: those that
    hang on something that the row does not state at all, so that a prediction would be a guess.
    """

    run: Run
    model: Model
    gpu: GPU
    stack: Stack
    job: Job
    strategy: Strategy
    rig: Rig
    setting: Setting
    variant: Variant
    measured: Measured
    assumed: dict[str, Any] = field(default_factory=dict[str, Any])
    unscored: dict[str, str] = field(default_factory=dict[str, str])
    unpredictable: frozenset[str] = frozenset()


class _Row:
    """Cells of one row, and the profile that fills the empty ones."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.notes = run.columns.get("notes", "")
        self.assumed: dict[str, Any] = {}

    def cell(self, name: str) -> str:
        return self.run.columns.get(name, "")

    def fill(self, name: str, value: Any) -> Any:
        self.assumed[name] = value
        return value

    def choice(self, name: str, default: str) -> str:
        value = spellings.choice(name, self.cell(name))
        return self.fill(name, default) if value is None else value

    def flag(self, name: str, default: bool) -> bool:
        value = spellings.flag(name, self.cell(name))
        return self.fill(name, default) if value is None else value

    def whole(self, name: str) -> int | None:
        value = spellings.number(name, self.cell(name), whole=True)
        return None if value is None else int(value)

    def number(self, name: str) -> float | None:
        return spellings.number(name, self.cell(name))


def settings(run: Run) -> Settings | Skipped:
    """The run as a question to the laws, or why it cannot be one. Never raises for what a cell says."""
    try:
        return _settings(_Row(run))
    except PerrunError as why:
        return Skipped(run, why.what if not why.expected else f"{why.what} (expected {why.expected})")
    except ValidationError as why:
        first = why.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        return Skipped(run, f"{where}: {first['msg']}" if where else str(first["msg"]))


def _settings(row: _Row) -> Settings:
    if OVERFLOW in row.run.columns:
        raise InvalidInput("the row has more cells than the header")
    variant = say.variant(
        row.notes,
        precision=row.cell("precision"),
        gpu=row.cell("gpu"),
        framework=row.cell("framework"),
        optimizer=row.cell("optimizer"),
    )
    method, variant = _method(row, variant)
    stack = _stack(row)
    model = _model(_stated(row, "model"))
    if isinstance(model, PerrunError):
        raise model
    gpu, rig = _rig(row)
    layout = spellings.layout(row.cell("sharding"), row.notes)
    strategy = _strategy(row, stack, rig, layout)
    lengths = _lengths(row)
    sequences = strategy.micro_batch * strategy.grad_accum * rig.n_gpus // (layout.tp * layout.pp * layout.cp)
    job = _job(row, stack, method, model, lengths).model_copy(update={"global_batch": sequences})
    setting = numbers.of(job, strategy, rig).with_(
        seq_len=lengths.longest,
        mean_len=lengths.mean,
        real_len=lengths.mean,
        varying=lengths.varying,
        virtual=variant.virtual_stages,
    )
    measured = _measured(row, setting)
    return Settings(
        run=row.run,
        model=model,
        gpu=gpu,
        stack=adjusted(stack, variant, row.cell("framework_version")),
        job=job,
        strategy=strategy,
        rig=rig,
        setting=setting,
        variant=variant,
        measured=measured,
        assumed=row.assumed,
        unscored=_unscored(row, lengths, rig, variant),
        unpredictable=_unpredictable(row),
    )


@cache
def _model(name: str) -> Model | PerrunError:
    """The model of a name, or why there is none: asked once, for the hub may be slow to say no."""
    try:
        return models.get(name)
    except PerrunError as why:
        return why


def _stack(row: _Row) -> Stack:
    """The profile of the row's framework; of the one that it drives when it has none of its own. Raises UnknownName."""
    cell = row.cell("framework")
    if cell.lower() in spellings.UNKNOWN:
        return stacks.get(row.fill("framework", "trl"))
    try:
        return stacks.get(cell)
    except UnknownName as unknown:
        for name in spellings.frameworks(cell):
            with suppress(UnknownName):
                return stacks.get(row.fill("framework", stacks.get(name).framework))
        raise unknown


def _stated(row: _Row, name: str) -> str:
    """A cell that no profile can fill. Raises InvalidInput when it is empty."""
    cell = row.cell(name)
    if cell.strip().lower() in spellings.UNKNOWN:
        raise InvalidInput(f"the {name} is not stated")
    return cell


def _method(row: _Row, variant: Variant) -> tuple[str, Variant]:
    """The method; `other` with LoRA on a GPTQ or AWQ base is QLoRA on that base, anything else has no law here."""
    cell = _stated(row, "method").strip().lower()
    if variant.adapters_on_experts:
        raise InvalidInput("adapters on expert tensors: perrun has no law for them")
    if cell != "other":
        return spellings.choice("method", cell) or "", variant
    if variant.base_quantization in ("gptq", "awq") and (row.cell("lora_rank") or "rank=" in row.notes):
        return "qlora", variant
    said = say.what_method(row.notes) or row.cell("optimizer")
    raise InvalidInput(
        f"method 'other' ({said}): perrun has no law for it" if said else "method 'other': no law for it"
    )


def _rig(row: _Row) -> tuple[GPU, Rig]:
    name, watts = spellings.gpu(row.cell("gpu"))
    card = gpus.get(name or row.fill("gpu", STAND_IN_GPU))
    n_gpus = row.whole("n_gpus") or row.fill("n_gpus", 1)
    n_nodes = row.whole("n_nodes") or row.fill("n_nodes", 1)
    link = row.cell("interconnect").lower()
    return card, Rig(
        gpu=card.id,
        n_gpus=n_gpus,
        n_nodes=n_nodes,
        interconnect=link if link in ("nvlink", "pcie") else None,  # type: ignore[arg-type]
        power_limit_w=watts or say.power_limit_w(row.notes),
        usable_gib=None if card.memory_gib_usable else row.fill("usable_gib", round(card.memory_gb * GB / GIB, 1)),
    )


def _strategy(row: _Row, stack: Stack, rig: Rig, layout: spellings.Layout) -> Strategy:
    ranks = layout.tp * layout.pp * layout.cp
    if rig.n_gpus % ranks:
        raise InvalidInput(f"{rig.n_gpus} GPUs cannot hold a model split {ranks} ways ({row.cell('sharding')})")
    copies = rig.n_gpus // ranks
    micro = row.whole("micro_batch")
    accum = row.whole("grad_accum")
    whole = row.whole("global_batch")
    if micro is None and whole and accum and whole % (accum * copies) == 0:
        micro = row.fill("micro_batch", whole // (accum * copies))
    if micro is None:
        raise InvalidInput("micro_batch is not stated")
    if accum is None:
        even = whole is not None and whole % (micro * copies) == 0
        accum = row.fill("grad_accum", whole // (micro * copies) if even and whole else 1)
    sharding = layout.sharding
    if sharding is None:
        sharding = row.fill("sharding", _default_sharding(stack, copies))
    return Strategy(
        micro_batch=micro,
        grad_accum=accum,
        checkpointing=row.choice("checkpointing", stack.checkpointing),  # type: ignore[arg-type]
        attention=row.choice("attention", stack.attention),  # type: ignore[arg-type]
        fused_ce=row.flag("fused_ce", stack.loss in ("fused", "chunked")),
        compile=row.flag("compile", stack.kernels == "compiled"),
        offload=row.choice("offload", "none"),  # type: ignore[arg-type]
        sharding=sharding,  # type: ignore[arg-type]
        tp=layout.tp,
        pp=layout.pp,
        cp=layout.cp,
        ep=layout.ep,
        framework=stack.framework,
    )


def _default_sharding(stack: Stack, copies: int) -> str:
    """Megatron's recipes shard the optimizer over the data-parallel ranks; other stacks replicate unless told."""
    if copies == 1:
        return "none"
    return "zero1" if stack.framework in ("megatron", "nemo") else "ddp"


@dataclass(frozen=True, slots=True)
class _Lengths:
    """Tokens of a sequence. longest_known: the longest sample had `longest` tokens; mean_known: likewise."""

    longest: float
    mean: float
    longest_known: bool
    mean_known: bool
    why_mean: str = ""
    varying: bool = True


def _lengths(row: _Row) -> _Lengths:
    tagged = say.tags(row.notes)
    seq_len = row.number("seq_len")
    mean = say.mean_length(row.notes)
    packed = row.flag("packing", False)
    if seq_len is None and mean is None:
        raise InvalidInput("seq_len is not stated")
    if seq_len is None and mean is not None:
        return _Lengths(mean, mean, longest_known=False, mean_known=True)
    if seq_len is None:
        raise InvalidInput("seq_len is not stated")
    exact = packed or "exact-seq" in tagged
    if exact:
        return _Lengths(seq_len, seq_len, longest_known=True, mean_known=True, varying=False)
    reached = say.reaches_cap(row.notes)
    if mean is not None:
        padded = "padded to the longest" in row.notes
        why = "padded to the longest of each batch, whose length is not stated" if padded else ""
        return _Lengths(seq_len, min(mean, seq_len), longest_known=reached, mean_known=not padded, why_mean=why)
    capped = "cap-seq" in tagged
    why = "seq_len is only a cap and the mean length is not stated"
    return _Lengths(seq_len, seq_len, longest_known=reached or not capped, mean_known=False, why_mean=why)


def _check_targets(targets: str, model: Model) -> None:
    """Names that hit no module would mean a run without adapters, which nobody measured."""
    if targets.startswith(("all-linear", "attn")):
        return
    modules = {linear.name for layer in model.shape.layers for linear in layer.linears}
    names = targets.split(",")
    if not modules & {*names, *(f"{name}_proj" for name in names)}:
        raise InvalidInput(
            f"lora_targets {targets!r} name no module of {model.id}", expected=", ".join(sorted(modules))
        )


def _job(row: _Row, stack: Stack, method: str, model: Model, lengths: _Lengths) -> Job:
    adapters: dict[str, Any] = {}
    if method in ADAPTER_METHODS:
        adapters["lora_rank"] = row.whole("lora_rank") or row.fill("lora_rank", stack.lora_rank)
        targets = spellings.lora_targets(row.cell("lora_targets"))
        adapters["lora_targets"] = targets or row.fill("lora_targets", stack.lora_targets)
        _check_targets(adapters["lora_targets"], model)
    half = "bf16-true" if stack.weights_default == "bf16" else "bf16-mixed"
    return Job(
        model=row.cell("model"),
        method=method,  # type: ignore[arg-type]
        objective=row.choice("objective", "sft"),  # type: ignore[arg-type]
        precision=row.choice("precision", half),  # type: ignore[arg-type]
        optimizer=row.choice("optimizer", stack.optimizer),  # type: ignore[arg-type]
        tokens_per_example=max(1, round(lengths.mean)),
        longest_example=max(1, round(lengths.longest)),
        seq_len=max(1, round(lengths.longest)),
        packing=row.flag("packing", False),
        **adapters,
    )


def _measured(row: _Row, setting: Setting) -> Measured:
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


def _tokens_per_s(row: _Row, setting: Setting) -> float | None:
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


def _unpredictable(row: _Row) -> frozenset[str]:
    found: set[str] = set()
    if row.number("seq_len") is None:
        found |= {"memory", "fit"}
    if "gpu" in row.assumed:
        found |= {"speed", "fit"}
    if "usable_gib" in row.assumed:
        found.add("fit")
    return frozenset(found)


def _unscored(row: _Row, lengths: _Lengths, rig: Rig, variant: Variant) -> dict[str, str]:
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
