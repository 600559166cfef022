"""One training step on fake tensors, its live bytes counted by phase."""

import contextlib
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd.graph import _engine_run_backward  # pyright: ignore[reportPrivateUsage]

from perrun.trace import base, kernels, loss, net, optimizers, quant
from perrun.trace.cuda_ops import CudaOperators, autocast_as_on_cuda
from perrun.trace.experts import grouped_products
from perrun.trace.lines import by_line
from perrun.trace.live import LiveStorages
from perrun.trace.recipe import Recipe


@dataclass(frozen=True, slots=True)
class Request:
    """What is traced of a job: the base, what is trained of it, and how its loss is made."""

    config: Mapping[str, Any]
    method: str = "lora"
    lora_rank: int = 16
    lora_targets: str = "all-linear"
    attention: str = "sdpa"
    objective: str = "sft"


@dataclass(frozen=True, slots=True)
class MicroStep:
    """Bytes of one forward and backward, before the optimizer has states.

    segments: highest live bytes of each layer's forward (`forward 0`, with the embedding, and so on; the one past the
    last layer ends at the head), of the loss (head to loss value), of the backward of loss and head (`backward`), and
    of each layer's (`backward 3`; layer 0's with the embedding's). forward_end: live just before the head. saved:
    live when the backward starts.
    after_backward: live at its end: weights, adapters, gradients. lines: what the highest segment is made of.
    """

    load: int
    segments: dict[str, int]
    forward_end: int
    saved: int
    after_backward: int
    lines: dict[str, dict[str, int]]

    def highest(self, phase: str) -> str:
        """Name of the phase's highest segment."""
        return max((name for name in self.segments if name.startswith(phase)), key=lambda name: self.segments[name])

    @property
    def forward(self) -> int:
        return self.segments[self.highest("forward")]

    @property
    def loss(self) -> int:
        return self.segments["loss"]

    @property
    def backward(self) -> int:
        return self.segments[self.highest("backward")]

    @property
    def peak(self) -> int:
        return max(self.segments.values())


@dataclass(frozen=True, slots=True)
class OptimizerSteps:
    """Bytes: peaks of the first step (it makes the states) and of a later one, and the states that stay on the GPU."""

    first: int
    later: int
    states: int


def _backward(value: torch.Tensor) -> None:
    """The engine's backward. `Tensor.backward` is a torch function: it would leave our mode, and recomputation too."""
    _engine_run_backward(
        (value,), (torch.ones_like(value),), False, False, (), allow_unreachable=True, accumulate_grad=True
    )


class Tracer:
    """A model on fake tensors whose step is traced phase by phase.

    One built tracer serves any batch shape, checkpointing and loss: set `recipe` and `checkpointing` between calls.
    """

    def __init__(self, request: Request, recipe: Recipe) -> None:
        self.request, self.recipe = request, recipe
        self.live = LiveStorages()
        self._fake = FakeTensorMode(allow_non_fake_inputs=True)
        self._forward_end = 0
        self._counting = False
        self.model = base.build(request, recipe)
        kernels.apply(self.model, recipe.kernels)
        self.reference = self._reference_model()
        with self._fake:
            base.materialise(self.model, self.live.watch)
            if self.reference is not None:
                base.materialise(self.reference, self.live.watch)
        self.load = self.live.now
        self._mark_layers()

    def _reference_model(self) -> net.Net | None:
        """DPO's reference: a copy for full fine-tuning; the base without its adapters otherwise (no bytes)."""
        if self.request.objective != "dpo" or self.request.method != "full":
            return None
        frozen = base.build(self.request, self.recipe)
        frozen.requires_grad_(False)
        return frozen.eval()

    def _mark_layers(self) -> None:
        def at_head(_head: Any, _inputs: Any) -> None:
            self._at_head()

        net.head(self.model).register_forward_pre_hook(at_head)
        for number, layer in enumerate(net.layers(self.model)):
            layer.register_forward_hook(self._layer_hook(number))

    def _layer_hook(self, number: int) -> Callable[..., None]:
        """The next layer's forward begins; the layer's backward begins when the gradient of its output arrives."""

        def begin(_gradient: torch.Tensor) -> None:
            self.live.enter(f"backward {number}")

        def hook(_module: Any, _inputs: Any, output: Any) -> None:
            tensor: torch.Tensor = output if isinstance(output, torch.Tensor) else output[0]
            if not self._counting:
                return
            if "loss" not in self.live.peaks:
                self.live.enter(f"forward {number + 1}")
            if tensor.requires_grad:
                tensor.register_hook(begin)  # pyright: ignore[reportUnknownMemberType]

        return hook

    def _at_head(self) -> None:
        if self._counting and "loss" not in self.live.peaks:
            self._forward_end = self.live.now
            self.live.enter("loss")

    @contextlib.contextmanager
    def _modes(self) -> Generator[None]:
        replaced = (autocast_as_on_cuda(), quant.dequantisable(), grouped_products())
        with contextlib.ExitStack() as stack:
            for mode in (self._fake, self.live, CudaOperators(), *replaced):
                stack.enter_context(mode)
            stack.enter_context(kernels.rotation(net.base_of(self.model), self.recipe.kernels))
            yield

    def checkpointing(self, kind: str) -> None:
        """Full checkpointing off (`none`) or on (`full`), as Trainer and peft do; `unsloth`: inputs go to the host."""
        model = net.base_of(self.model)
        if getattr(model, "_require_grads_hooks", None):
            model.disable_input_require_grads()
        if kind == "none":
            model.gradient_checkpointing_disable()
            return
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": self.recipe.reentrant})
        if kind == "unsloth":
            for module in model.modules():
                if hasattr(module, "_gradient_checkpointing_func"):
                    module._gradient_checkpointing_func = kernels.offloaded_checkpoint
        if self.request.method != "full" and not getattr(model, "_require_grads_hooks", None):
            model.enable_input_require_grads()  # a second call would lose the first one's hooks

    def micro_step(self, micro_batch: int, seq_len: int) -> MicroStep:
        """Forward, loss and backward; gradients stay on the parameters (and add up over calls, until `clear`)."""
        self.live.forget()
        self._counting = True
        rows = 2 * micro_batch if self.request.objective == "dpo" else micro_batch
        with self._modes():
            tokens = torch.randint(0, 100, (rows, seq_len))
            self.live.enter("forward 0")
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.recipe.autocast):
                value, held = loss.of(self.model, self.reference, tokens, self.recipe, self.request, self._at_head)
            saved, kept = self.live.now, self.live.living()
            self.live.enter("backward")
            _backward(value)
            del value, held, tokens
            self.live.leave()
        self._counting = False
        lines = by_line(self.live, self._parameters(), self._gradients(), kept, net.vocabulary(self.model))
        return MicroStep(self.load, dict(self.live.peaks), self._forward_end, saved, self.live.now, lines)

    def _parameters(self) -> dict[int, str]:
        adapted = self.request.method != "full"
        return {
            self.live.watch(p): "adapters" if adapted and p.requires_grad else "weights"
            for p in self.model.parameters()
        }

    def _gradients(self) -> set[int]:
        return {self.live.watch(p.grad) for p in self.model.parameters() if p.grad is not None}

    def optimizer_steps(self, kind: str, implementation: str) -> OptimizerSteps:
        """Two optimizer steps on the gradients at hand; the states are dropped afterwards."""
        before = self.live.now
        peaks: list[int] = []
        self.live.forget()
        with self._modes():
            optimizer = optimizers.make(kind, implementation, self.model.parameters())
            for name in ("first", "later"):
                self.live.enter(name)
                optimizer.step()
                self.live.leave()
                peaks.append(self.live.peaks[name])
            states = self.live.now - before
            del optimizer
        return OptimizerSteps(peaks[0], peaks[1], states)

    def clear(self) -> None:
        """Drop the gradients, as zero_grad does, so that another micro step starts fresh."""
        for parameter in self.model.parameters():
            parameter.grad = None
