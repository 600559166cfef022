"""What a stack runs in place of the model's own code: Liger's fused elementwise kernels, checkpoints on the host.

Buffers of Liger's kernels as in linkedin/Liger-Kernel:src/liger_kernel/ops (0.8): rms_norm.py (output; saves input
and one float32 per row; the gradient overwrites the incoming one, or is a new tensor with `in_place=False`; a weight
gradient is summed in float32 [SMs, hidden]), swiglu.py and geglu.py (output; saves both inputs, which the gradients
overwrite), rope.py (queries and keys are rotated in place, so are their gradients).
"""

import contextlib
import sys
from collections.abc import Callable, Generator
from types import MethodType
from typing import Any
from unittest import mock

import torch

from perrun.trace.net import Net, applied

_SMS = 108  # streaming multiprocessors, rows of the norm's partial weight gradients (A100; 132 on H100: a few KiB more)


class _RMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        ctx.save_for_backward(x, weight, x.new_empty(x.numel() // x.shape[-1], dtype=torch.float32))
        return torch.empty_like(x)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        _x, weight, _rstd = ctx.saved_tensors
        grad = grads[0].contiguous()
        if not ctx.needs_input_grad[1]:
            return grad, None
        return grad, weight.new_empty(_SMS, weight.shape[0], dtype=torch.float32).sum(0).to(weight.dtype)


class _GatedProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        gate, up = gate.contiguous(), up.contiguous()
        ctx.save_for_backward(gate, up)
        return torch.empty_like(gate)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, ...]:
        del grads
        return ctx.saved_tensors


class _Rotation(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: torch.Tensor, k: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        del ctx
        return q, k

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, ...]:
        del ctx
        return grads


def _rotate(q: torch.Tensor, k: torch.Tensor, *_angles: Any, **_: Any) -> tuple[torch.Tensor, torch.Tensor]:
    return applied(_Rotation, q, k)


def _norm_forward(self: Net, x: torch.Tensor) -> torch.Tensor:
    return applied(_RMSNorm, x, self.weight)


def _mlp_forward(self: Net, x: torch.Tensor) -> torch.Tensor:
    return self.down_proj(applied(_GatedProduct, self.gate_proj(x), self.up_proj(x)))


def apply(model: Net, kind: str) -> None:
    """Patch norms and gated MLPs; `eager` leaves the model as transformers wrote it."""
    if kind == "eager":
        return
    for module in model.modules():
        if type(module).__name__.endswith("RMSNorm") and getattr(module, "weight", None) is not None:
            module.forward = MethodType(_norm_forward, module)
        elif all(hasattr(module, name) for name in ("gate_proj", "up_proj", "down_proj", "act_fn")):
            module.forward = MethodType(_mlp_forward, module)


@contextlib.contextmanager
def rotation(model: Net, kind: str) -> Generator[None]:
    """While active, the model's code rotates in place."""
    code = sys.modules[type(model).__module__]
    if kind == "eager" or not hasattr(code, "apply_rotary_pos_emb"):
        yield
        return
    with mock.patch.object(code, "apply_rotary_pos_emb", _rotate):
        yield


class _OffloadedCheckpoint(torch.autograd.Function):
    """A checkpoint whose input is copied to host memory (unslothai/unsloth-zoo: gradient_checkpointing.py)."""

    @staticmethod
    def forward(ctx: Any, function: Callable[..., Any], hidden: torch.Tensor, *rest: Any) -> Any:
        with torch.no_grad():
            out = function(hidden, *rest)
        ctx.function, ctx.rest = function, rest
        ctx.shape, ctx.dtype = hidden.shape, hidden.dtype
        ctx.autocast = torch.is_autocast_enabled("cpu")
        return out

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        hidden = torch.empty(ctx.shape, dtype=ctx.dtype, requires_grad=True)
        with torch.enable_grad(), torch.autocast("cpu", dtype=torch.bfloat16, enabled=ctx.autocast):
            out = ctx.function(hidden, *ctx.rest)
        torch.autograd.backward(out, grads)
        return None, hidden.grad, *(None for _ in ctx.rest)


def offloaded_checkpoint(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """A checkpoint function for transformers that leaves nothing of the layer's input on the GPU."""
    del kwargs
    return applied(_OffloadedCheckpoint, function, *args)
