"""What will happen to a job on a rig: memory, speed and the probability that it fits, each with its trace.

`ask` turns names into facts and refuses what cannot be; `answer` is one Estimate; `figures` is the same for arrays
of candidates, which the search uses.
"""

from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from perrun import memory, setting, speed
from perrun.errors import InvalidInput, MissingFact, UnsupportedByGpu
from perrun.facts import gpus, models, stacks, tables
from perrun.facts.stacks import Stack
from perrun.physics import allocator, params
from perrun.physics import memory as law
from perrun.setting import Setting
from perrun.terms import GPU, Estimate, Job, Memory, Model, Note, Rig, Strategy
from perrun.units import GIB

if TYPE_CHECKING:
    from perrun.runs import Settings  # reading measured runs is off the start-up path

# A Python process with torch and its libraries loaded, and one shard file of safetensors as the hub cuts them.
HOST_PROCESS_GIB = 4.0
HOST_SHARD_GIB = 5.0
# Lines whose blocks come and go within a step: the pools of the allocator.
MOVING = ("saved activations", "layer backward", "logits and loss", "gradients", "optimizer temporary")
MIN_FIT = 0.9  # least probability at which a strategy is taken to fit, unless the user says otherwise
RANGE_90 = 1.645  # standard deviations of the normal distribution that hold 90 %


@dataclass(frozen=True, slots=True)
class Question:
    """A job, a strategy and a rig with all facts that the laws need."""

    model: Model
    setting: Setting
    stack: Stack
    gpu: GPU
    rig: Rig
    assumed: dict[str, Any] = field(default_factory=dict[str, Any])
    stored_quantization: str | None = None


@dataclass(frozen=True, slots=True)
class Figures:
    """Numbers of one question or of an array of them; bytes and seconds."""

    peak: memory.Peak
    reserved: Any
    device: Any
    fits: Any
    time_lines: dict[str, Any]
    step_s: Any
    tokens_per_s: Any

    def at(self, row: int) -> "Figures":
        """Numbers of one question of several."""
        lines, phase = _at(self.peak.lines, row), _one(self.peak.phase, row)
        return Figures(
            peak=replace(self.peak, lines=lines, allocated=_one(self.peak.allocated, row), phase=phase),
            reserved=_one(self.reserved, row),
            device=_one(self.device, row),
            fits=_one(self.fits, row),
            time_lines=_at(self.time_lines, row),
            step_s=_one(self.step_s, row),
            tokens_per_s=_one(self.tokens_per_s, row),
        )


def _one(value: Any, row: int) -> Any:
    return value[row] if np.ndim(value) else value


def _at(lines: dict[str, Any], row: int) -> dict[str, Any]:
    return {name: _one(value, row) for name, value in lines.items()}


@cache
def reuse() -> allocator.Reuse:
    """The fitted parameters of the allocator."""
    return allocator.Reuse(_memory_calibration())


@cache
def _memory_calibration() -> dict[str, float]:
    return {row["parameter"]: float(row["value"]) for row in tables.read("memory_calibration")}


def usable_gib(gpu: GPU, rig: Rig | None = None) -> float:
    """Memory that a card really has: what nvidia-smi calls total [GiB]. Raises MissingFact."""
    if rig is not None and rig.usable_gib is not None:
        return rig.usable_gib
    if gpu.memory_gib_usable is None:
        raise MissingFact(f"the usable memory of {gpu.id} is not known", hint="pass it with --usable-gib")
    return gpu.memory_gib_usable


def ask(job: Job, strategy: Strategy, rig: Rig, model: Model | None = None) -> Question:
    """The question with its facts, or why it cannot be asked.

    Raises UnknownName, AmbiguousName, InvalidInput, UnsupportedByGpu, MissingFact, UnsupportedModel.
    """
    gpu = gpus.get(rig.gpu)
    found = model or models.get(job.model)
    stack = stacks.get(strategy.framework)
    check(job, strategy, rig, gpu, found)
    numbers = speed.as_padded(setting.of(job, strategy, rig))
    assumed = {
        "framework": f"{stack.label} {stack.versions}",
        "kbit_upcast": stack.kbit_upcast,
        "adapter_dtype": stack.adapter_dtype,
        "kernels": stack.kernels,
        "loss": "fused" if strategy.fused_ce else ("plain" if stack.loss == "fused" else stack.loss),
        "optimizer_impl": stack.optimizer_impl,
    }
    return Question(found, numbers, stack, gpu, rig, assumed, found.stored_quantization)


def check(job: Job, strategy: Strategy, rig: Rig, gpu: GPU, model: Model) -> None:
    """Refuses combinations that no stack can run. Raises InvalidInput or UnsupportedByGpu."""
    check_card(job, gpu)
    if strategy.attention == "flash3" and gpu.architecture != "Hopper":  # its kernels need Hopper's instructions
        raise UnsupportedByGpu(
            f"{gpu.id} cannot run FlashAttention-3 ({gpu.architecture})",
            expected="a Hopper card, or --attention flash2 or sdpa",
        )
    if strategy.attention == "flash2" and (gpu.compute_capability or 8.0) < 8.0:  # FlashAttention README
        raise UnsupportedByGpu(
            f"{gpu.id} cannot run FlashAttention-2 ({gpu.architecture})",
            expected="a card from Ampere on, or --attention sdpa",
        )
    longest = model.max_position_embeddings
    if longest is not None and job.seq_len > longest:
        raise InvalidInput(
            f"seq_len {job.seq_len} is longer than {model.id} can see",
            expected=f"at most {longest} tokens",
            hint="shorten the rows, or choose a model with a longer context",
        )
    if job.adapters and not params.adapters_total(model.shape, job.lora_targets, 1):
        names = sorted({m.name for layer in model.shape.layers for m in layer.linears if m.is_module})
        raise InvalidInput(
            f"lora_targets {job.lora_targets!r} match no matrix of {model.id}",
            expected=f"all-linear, attn, attn-qv or some of {', '.join(names)}",
        )
    if rig.n_gpus > 1 and strategy.sharding == "none" and strategy.tp * strategy.pp * strategy.cp == 1:
        raise InvalidInput(
            f"{rig.n_gpus} GPUs without a way to share the work",
            expected="--sharding ddp, zero1, zero2, zero3, fsdp or fsdp2",
        )
    ranks = strategy.tp * strategy.pp * strategy.cp
    if rig.n_gpus % ranks:
        raise InvalidInput(f"{rig.n_gpus} GPUs cannot be split {ranks} ways (tp x pp x cp)")


def check_card(job: Job, gpu: GPU) -> None:
    """Refuses a precision that the card cannot run. Raises UnsupportedByGpu."""
    if job.precision.startswith("bf16") and not gpu.supports_bf16:
        raise UnsupportedByGpu(
            f"{gpu.id} has no bf16 ({gpu.architecture})",
            expected="a card from Ampere on, or --precision fp16-mixed",
        )
    if job.precision in ("fp8", "mxfp8") and not gpu.fp8_dense_tflops:
        raise UnsupportedByGpu(
            f"{gpu.id} has no FP8 ({gpu.architecture})",
            expected="a card from Ada or Hopper on, or --precision bf16-true",
        )
    if job.precision == "nvfp4" and not gpu.fp4_dense_tflops:
        raise UnsupportedByGpu(f"{gpu.id} has no FP4 ({gpu.architecture})", expected="a Blackwell card")


def memory_figures(
    model: Model,
    numbers: Setting,
    stack: Stack,
    usable_bytes: Any,
    stored: str | None,
    fit: dict[str, float] | None = None,
    told: bool = True,
) -> Any:
    """(peak, reserved, device, fits) of one setting or of arrays [bytes, probability]; `fit` as in `answer`.

    told: whether the lines of the peak are wanted.
    """
    peak = memory.peak(model.shape, numbers, stack, stored, told)
    fitted = allocator.Reuse(fit) if fit else reuse()
    pools = peak.pools
    several = np.asarray(numbers.n_gpus) > 1
    resident = sum(value for name, value in pools.items() if name not in MOVING)
    reserved = allocator.reserved_bytes(
        peak.allocated,
        resident,
        pools["saved activations"],
        pools["layer backward"],
        pools["logits and loss"],
        pools["gradients"] + pools["optimizer temporary"],
        stack.extra_pools,
        fitted,
    )
    device = allocator.device_bytes(reserved, peak.allocated, several, usable_bytes, fitted)
    spread = (fit or _memory_calibration())["fit_spread"]
    fits = allocator.fits_probability(peak.allocated, several, usable_bytes, fitted, spread)
    fixed = fitted.context + np.where(several, fitted.communicator, 0.0)
    return peak, np.maximum(device - fixed, peak.allocated), device, fits


def host_ram_gib(model: Model, numbers: Setting, peak: memory.Peak) -> Any:
    """RAM of one node at load and while training [GiB].

    Each process holds the libraries and one shard file; sharded loading keeps all weights once per node; offloaded
    parameters, gradients and states live in pinned memory. Source: transformers from_pretrained (safetensors are
    read shard by shard), accelerate fsdp_cpu_ram_efficient_loading, DeepSpeed ZeRO-Offload arXiv 2101.06840.
    """
    local = np.asarray(numbers.n_gpus) / np.asarray(numbers.n_nodes)
    ram = local * (HOST_PROCESS_GIB + HOST_SHARD_GIB)
    if numbers.sharding in ("fsdp", "fsdp2", "zero3"):
        ram = ram + 2.0 * model.total_params / GIB
    trained = model.total_params
    if numbers.adapters:
        trained = params.adapters_total(model.shape, numbers.lora_targets, float(np.max(numbers.lora_rank)))
    ram = ram + trained * law.optimizer_host_bytes(numbers.optimizer) * local / GIB
    if numbers.offload in ("optimizer", "both"):
        ram = ram + 16.0 * trained / np.asarray(numbers.n_nodes) / GIB
    if numbers.offload in ("params", "both"):
        ram = ram + peak.lines["base weights"] * local / GIB
    return ram


def figures(question: Question, calibration: Any = None, memory_fit: dict[str, float] | None = None) -> Figures:
    """All numbers of a question; its Setting's numbers may be arrays. Fits as in `answer`."""
    card, usable = speed.card(question.gpu, question.rig), usable_gib(question.gpu, question.rig) * GIB
    return _figures(question, question.setting, card, usable, calibration, memory_fit)


def _figures(
    like: Question, numbers: Setting, card: Any, usable: Any, calibration: Any, memory_fit: dict[str, float] | None
) -> Figures:
    """Numbers of questions about one model and stack; numbers, card and usable bytes may be arrays."""
    stored = like.stored_quantization
    peak, reserved, device, fits = memory_figures(like.model, numbers, like.stack, usable, stored, memory_fit)
    lines = speed.time_lines(like.model.shape, numbers, card, like.stack, calibration, stored)
    step = sum(lines.values())
    return Figures(peak, reserved, device, fits, lines, step, speed.tokens_per_s(numbers, step))


def answer(question: Question, calibration: Any = None, memory_fit: dict[str, float] | None = None) -> Estimate:
    """One Estimate, with every line's law and source.

    calibration and memory_fit are fits to use instead of the shipped ones: of the speed law's constants, and of the
    allocator's (parameter -> value, as in memory_calibration.csv).
    """
    return _estimate(question, figures(question, calibration, memory_fit), calibration, memory_fit)


def answers(questions: list[Question]) -> list[Estimate]:
    """Estimates of several questions; those that differ in numbers alone go through the laws together."""
    groups: dict[Any, list[int]] = {}
    for index, one in enumerate(questions):
        groups.setdefault((id(one.model), setting.category(one.setting)), []).append(index)
    found: dict[int, Estimate] = {}
    for indices in groups.values():
        asked = [questions[i] for i in indices]
        numbers = setting.stacked([one.setting for one in asked])
        cards = speed.stacked([speed.card(one.gpu, one.rig) for one in asked])
        usable = np.array([usable_gib(one.gpu, one.rig) * GIB for one in asked])
        f = _figures(asked[0], numbers, cards, usable, None, None)
        found |= {i: _estimate(questions[i], f.at(row), None, None) for row, i in enumerate(indices)}
    return [found[index] for index in range(len(questions))]


def _estimate(question: Question, f: Figures, calibration: Any, memory_fit: dict[str, float] | None) -> Estimate:
    """The numbers of one question with their ranges, in words and with their trace."""
    has = usable_gib(question.gpu, question.rig)
    fit = memory_fit or _memory_calibration()
    spread, narrow = (float(np.exp(RANGE_90 * fit[name])) for name in ("device_spread", "allocated_spread"))
    device, allocated = float(f.device) / GIB, float(f.peak.allocated) / GIB
    fixed = device - allocated
    lines = {name: float(value) / GIB for name, value in f.peak.lines.items() if float(value) > 0}
    lines["allocator, context, communicator"] = fixed
    low, high = speed.tokens_range(question.setting, question.stack, float(f.tokens_per_s), calibration)
    found = Memory(
        allocated_gib=allocated,
        reserved_gib=float(f.reserved) / GIB,
        device_gib=device,
        low_gib=device / spread,
        high_gib=device * spread,
        allocated_low_gib=allocated / narrow,
        allocated_high_gib=allocated * narrow,
        phase=memory.PHASES[int(f.peak.phase)],
        lines=lines,
    )
    fits = float(np.clip(f.fits, 0.0, 1.0))
    return Estimate(
        memory=found,
        host_ram_gib=float(host_ram_gib(question.model, question.setting, f.peak)),
        tokens_per_s=float(f.tokens_per_s),
        tokens_per_s_low=low,
        tokens_per_s_high=high,
        processed_tokens_per_s=float(speed.processed_tokens_per_s(question.setting, f.step_s)),
        step_s=float(f.step_s),
        time_lines={name: float(value) for name, value in f.time_lines.items()},
        fits_probability=fits,
        why_not=None if fits >= 0.5 else f"needs {device:.1f} GiB, has {has:.1f}",
        assumed=question.assumed,
        trace=trace(found, question),
    )


def trace(found: Memory, question: Question) -> list[Note]:
    """Where each line comes from: its law, and the source of the facts it read."""
    profile = f"{question.stack.framework} {question.stack.versions}: {question.stack.source}"
    notes = [
        Note(line=name, law=memory.LAWS.get(name, "fitted: see docs/memory.md"), source=profile) for name in found.lines
    ]
    notes += [Note(line=f"time: {name}", law=text, source="docs/speed.md") for name, text in speed.LAWS.items()]
    notes.append(Note(line="model", law="shape from config.json", source=question.model.source))
    notes.append(Note(line="gpu", law="specification, dense rates", source=question.gpu.source))
    return notes


def estimate(job: Job, strategy: Strategy, rig: Rig) -> Estimate:
    """Memory, speed and fit of one job on one rig. Raises what `ask` raises."""
    return answer(ask(job, strategy, rig))


def estimate_setting(
    asked: "Settings", calibration: Any = None, memory_fit: dict[str, float] | None = None
) -> Estimate:
    """A measured run predicted from its settings alone; fits as in `answer`. Raises UnsupportedByGpu, MissingFact."""
    check_card(asked.job, asked.gpu)
    stored = asked.stored_quantization
    question = Question(asked.model, asked.setting, asked.stack, asked.gpu, asked.rig, asked.assumed, stored)
    return answer(question, calibration, memory_fit)
