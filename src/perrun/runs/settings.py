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
from perrun.runs.cells import Row
from perrun.runs.lengths import Lengths
from perrun.runs.lengths import lengths as lengths_of
from perrun.runs.measured import Measured, measured, unpredictable, unscored
from perrun.runs.notes import Variant
from perrun.runs.table import OVERFLOW
from perrun.setting import Setting
from perrun.terms import GPU, Job, Model, Rig, Run, Strategy
from perrun.units import GB, GIB

# Stands in where a row names no card: memory hardly depends on it. Most measured rows were taken on it.
STAND_IN_GPU = "A100-SXM4-80GB"
ADAPTER_METHODS = ("lora", "qlora", "lora-int8", "dora", "qdora")


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

    @property
    def stored_quantization(self) -> str | None:
        """How the base is stored on disk: as the row says, else as the published weights are."""
        base = self.variant.base_quantization
        return base if base in ("gptq", "awq") else self.model.stored_quantization


def settings(run: Run) -> Settings | Skipped:
    """The run as a question to the laws, or why it cannot be one. Never raises for what a cell says."""
    try:
        return _settings(Row(run))
    except PerrunError as why:
        return Skipped(run, why.what if not why.expected else f"{why.what} (expected {why.expected})")
    except ValidationError as why:
        first = why.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        return Skipped(run, f"{where}: {first['msg']}" if where else str(first["msg"]))


def _settings(row: Row) -> Settings:
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
    model = _model(row.stated("model"))
    if isinstance(model, PerrunError):
        raise model
    gpu, rig = _rig(row)
    layout = spellings.layout(row.cell("sharding"), row.notes)
    strategy = _strategy(row, stack, rig, layout)
    lengths = lengths_of(row)
    sequences = strategy.micro_batch * strategy.grad_accum * rig.n_gpus // (layout.tp * layout.pp * layout.cp)
    job = _job(row, stack, method, model, lengths).model_copy(update={"global_batch": sequences})
    setting = numbers.of(job, strategy, rig).with_(
        seq_len=lengths.longest,
        mean_len=lengths.mean,
        real_len=lengths.mean,
        varying=lengths.varying,
        virtual=variant.virtual_stages,
    )
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
        measured=measured(row, setting),
        assumed=row.assumed,
        unscored=unscored(row, lengths, rig, variant),
        unpredictable=unpredictable(row),
    )


@cache
def _model(name: str) -> Model | PerrunError:
    """The model of a name, or why there is none: asked once, for the hub may be slow to say no."""
    try:
        return models.get(name)
    except PerrunError as why:
        return why


def _stack(row: Row) -> Stack:
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


def _method(row: Row, variant: Variant) -> tuple[str, Variant]:
    """The method; `other` with LoRA on a GPTQ or AWQ base is QLoRA on that base, anything else has no law here."""
    cell = row.stated("method").strip().lower()
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


def _rig(row: Row) -> tuple[GPU, Rig]:
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


def _strategy(row: Row, stack: Stack, rig: Rig, layout: spellings.Layout) -> Strategy:
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


def _job(row: Row, stack: Stack, method: str, model: Model, lengths: Lengths) -> Job:
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
