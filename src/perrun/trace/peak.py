"""The traced peak of a job: phases put together from one micro step and two optimizer steps."""

import contextlib
import importlib.metadata
import logging
import threading
import time
import warnings
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from perrun.errors import InvalidInput, Unavailable
from perrun.terms import Job, Model, Rig, Strategy
from perrun.trace.depth import Run, extrapolate, layers_of, to_trace, truncated
from perrun.trace.recipe import Recipe
from perrun.trace.recipe import of as recipe_of

if TYPE_CHECKING:
    from perrun.trace.step import MicroStep, OptimizerSteps, Request

Progress = Callable[[str, float], None]
Depth = Literal["full", "reduced"]

_ONE_AT_A_TIME = threading.Lock()  # a trace replaces functions of torch, transformers and peft while it runs
_PACKAGES = ("torch", "transformers", "peft", "bitsandbytes")
_WORKSPACE = {False: 4096 * 1024 * 2 + 16 * 1024 * 8, True: 32 * 1024 * 1024}  # bytes per cuBLAS handle
_HANDLES = 2  # the forward's thread and autograd's thread each have one


@dataclass(frozen=True, slots=True)
class TracedPeak:
    """Bytes that the allocator hands out on one GPU, by phase; sharded layouts are not traced.

    phases: load (weights and adapters); forward (its highest, up to the head); forward_end (live before the head);
    loss; backward; step_1 and step_2 (the optimizer's first and second step). Forward, loss and backward are those of
    a later step, when the optimizer has its states. lines: what the peak is made of; they sum to peak.
    layers: depths that were traced (one number: every layer; two: extrapolated from these).
    """

    phases: dict[str, int]
    peak: int
    phase: str
    lines: dict[str, int]
    states: int
    layers: tuple[int, ...]
    recipe: Recipe
    versions: dict[str, str]
    seconds: float


def workspace(rig: Rig | None) -> int:
    """Bytes of cuBLAS workspaces: 8.125 MiB a handle, 32 MiB on Hopper and later.

    Source: getChosenWorkspaceSize in pytorch/pytorch:aten/src/ATen/cuda/CublasHandlePool.cpp. Without a rig: the
    smaller one. Two handles, of the main and the autograd thread, explain the 16 to 18 MiB that measured runs of
    fms-acceleration-benchmarks have beyond the traced storages.
    """
    if rig is None:
        return _HANDLES * _WORKSPACE[False]
    from perrun.facts import gpus

    capability = gpus.get(rig.gpu).compute_capability
    return _HANDLES * _WORKSPACE[capability is not None and capability >= 9.0]


def versions() -> dict[str, str]:
    """Versions of the modelling code that a trace runs. Raises Unavailable without the extra `trace`."""
    try:
        return {name: importlib.metadata.version(name) for name in _PACKAGES}
    except importlib.metadata.PackageNotFoundError as error:
        raise Unavailable(f"tracing needs {error.name}", hint="pip install 'perrun[trace]'") from error


@contextlib.contextmanager
def _quietly() -> Generator[None]:
    """Keep the libraries' warnings (a config's odd token ids, names that will go away) out of our output."""
    logger = logging.getLogger("transformers")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def _silent(_word: str, _share: float) -> None:
    """Nobody listens."""


def _refuse(job: Job, strategy: Strategy) -> None:
    """Raises InvalidInput for what the traced step does not model."""
    degrees = (strategy.tp, strategy.pp, strategy.cp, strategy.ep)
    if strategy.sharding not in ("none", "ddp") or any(degree > 1 for degree in degrees):
        raise InvalidInput(
            f"sharded layouts are not traced (sharding {strategy.sharding})",
            expected="sharding none",
            hint="the closed form covers sharding: leave --trace out",
        )
    if strategy.offload != "none" or strategy.compile:
        raise InvalidInput("offload and compile are not traced", expected="offload none, compile off")
    if strategy.attention == "te":
        raise InvalidInput("TransformerEngine's attention is not traced", expected="eager, sdpa, flash2 or flash3")
    if strategy.checkpointing == "selective":
        raise InvalidInput("selective checkpointing is not traced", expected="none, full or unsloth")
    if job.method == "freeze":
        raise InvalidInput("method freeze is not traced", expected="full, lora, qlora, lora-int8, dora or qdora")
    if job.objective not in ("sft", "pretrain", "dpo"):
        raise InvalidInput(f"objective {job.objective} is not traced", expected="sft, pretrain or dpo")


def trace(
    model: Model,
    job: Job,
    strategy: Strategy,
    rig: Rig | None = None,
    *,
    recipe: Recipe | None = None,
    depth: Depth = "full",
    progress: Progress | None = None,
) -> TracedPeak:
    """Peak allocated bytes of a real training step of `job`, op by op, without a GPU.

    recipe: what the training stack decides; by default what strategy.framework's profile says. depth: `full` traces
    every layer (5 to 20 s for 32 layers); `reduced` traces one and two periods of layers and extrapolates each phase,
    which is linear in depth (2 to 4 s). progress: called with a word and the share done.

    Raises InvalidInput (a layout that is not traced), UnsupportedModel (transformers cannot build it), Unavailable
    (the extra `trace` is missing).
    """
    _refuse(job, strategy)
    packages = versions()
    from perrun.trace.step import Request

    started = time.perf_counter()
    request = Request(
        model.config | {"model_type": model.model_type},
        job.method, job.lora_rank, job.lora_targets, strategy.attention, job.objective,
    )  # fmt: skip
    chosen = recipe or recipe_of(job, strategy)
    with _ONE_AT_A_TIME, _quietly():
        runs = _runs(request, chosen, job, strategy, depth, progress or _silent)
    whole = runs[0] if len(runs) == 1 else extrapolate(runs[0], runs[1], layers_of(request.config))
    layers = tuple(run.layers for run in runs)
    return _put_together(whole, workspace(rig), layers, chosen, packages, time.perf_counter() - started)


def _runs(
    request: "Request", recipe: Recipe, job: Job, strategy: Strategy, depth: Depth, report: Progress
) -> "list[Run]":
    """One run at the whole depth, or two from which it follows."""
    counts = to_trace(request, recipe) if depth == "reduced" else (layers_of(request.config),)
    runs: list[Run] = []
    for number, count in enumerate(counts):
        report(f"{count} layers", number / len(counts))
        runs.append(_run(replace(request, config=truncated(request.config, count)), recipe, job, strategy))
    report("done", 1.0)
    return runs


def _run(request: "Request", recipe: Recipe, job: Job, strategy: Strategy) -> "Run":
    from perrun.trace.step import Tracer

    length = job.seq_len if job.packing else min(job.longest_example or job.seq_len, job.seq_len)
    tracer = Tracer(request, recipe)
    tracer.checkpointing(strategy.checkpointing)
    micro = tracer.micro_step(strategy.micro_batch, length)
    later = tracer.micro_step(strategy.micro_batch, length) if strategy.grad_accum > 1 else micro
    steps = tracer.optimizer_steps(job.optimizer, recipe.optimizer_impl)
    return Run(micro, later, steps, layers_of(request.config))


def _put_together(
    run: "Run", extra: int, counts: tuple[int, ...], recipe: Recipe, packages: dict[str, str], seconds: float
) -> TracedPeak:
    """Phases of a later step: those of the micro step plus the states, and the optimizer's own."""
    micro = max(run.micro, run.later, key=lambda step: step.peak)
    states = run.optimizer.states
    phases = {
        "load": run.micro.load,
        "forward": micro.forward + states,
        "forward_end": micro.forward_end + states,
        "loss": micro.loss + states,
        "backward": micro.backward + states,
        "step_1": run.optimizer.first,
        "step_2": run.optimizer.later,
    }
    phases = {name: size + (extra if name != "load" else 0) for name, size in phases.items()}
    phase = max(phases, key=lambda name: phases[name])
    lines = _lines(micro, run.optimizer, phase) | {"workspace": extra}
    return TracedPeak(phases, phases[phase], phase, lines, states, counts, recipe, packages, seconds)


def _lines(micro: "MicroStep", optimizer: "OptimizerSteps", phase: str) -> dict[str, int]:
    """Named bytes of the highest phase, without the workspace."""
    if phase.startswith("step"):
        peak = optimizer.first if phase == "step_1" else optimizer.later
        return {
            "weights": micro.lines["backward"]["weights"],
            "adapters": micro.lines["backward"]["adapters"],
            "gradients": micro.after_backward - micro.load,
            "optimizer_states": optimizer.states,
            "temporaries": peak - optimizer.states - micro.after_backward,
        }
    return micro.lines[micro.highest(phase)] | {"optimizer_states": optimizer.states}
