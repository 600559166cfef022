"""What CUDA runs where the CPU runs something else: attention kernels, dropout, autocast's list of operators.

The step is traced on fake CPU tensors, because a fake CUDA tensor needs a CUDA build. Most operators allocate the
same on both; those that don't are replaced here by operators of the same outputs, saved tensors and workspaces.

Sources (pytorch/pytorch 2.13, Dao-AILab/flash-attention 2.7):
- flash forward: out like q, logsumexp [b, h, s] float32, two random-state words; saves q, k, v, out, logsumexp
  (aten/src/ATen/native/transformers/cuda/flash_attn/flash_api.cpp mha_fwd; derivatives.yaml
  _scaled_dot_product_flash_attention).
- flash backward: dq, dk, dv; softmax_d [b, h, s rounded to 128] float32; dq accumulator
  [b, s rounded to 128, h, d rounded to 32] float32; with grouped queries dk and dv of every query head, summed
  over the groups at the end (flash_api.cpp mha_bwd).
- memory-efficient kernel (taken when there is a mask): logsumexp [b, h, s rounded to 32] float32, the mask as an
  additive one in q's dtype; backward dq, dk, dv, delta [b, h, s] float32 and a float32 accumulator of dq
  (attention.cu, attention_backward.cu, mem_eff_attention/kernel_backward.h: kNeedsAccumGradQ; k and v of head_dim
  <= 128 stay in registers).
- dropout: native_dropout keeps a mask of one byte per element (Dropout.cpp is_fused_kernel_acceptable).
- autocast: the float32 list of aten/src/ATen/autocast_mode.h for CUDA, longer than the one for CPU.
"""

import contextlib
from collections.abc import Callable, Generator
from typing import Any
from unittest import mock

import torch
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from perrun.trace.net import applied


def _up(n: int, multiple: int) -> int:
    return -(-n // multiple) * multiple


class FlashAttention(torch.autograd.Function):
    """q [b, s, h, d], k and v [b, t, kv, d] -> out [b, s, h, d], with the flash kernels' buffers."""

    @staticmethod
    def forward(ctx: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        b, s, h, d = q.shape
        padded = _up(d, 8)
        if padded != d:  # the kernels take head sizes in multiples of 8; the padded copies are what is saved
            q, k, v = (F.pad(x, (0, padded - d)) for x in (q, k, v))
        out = q.new_empty(b, s, h, padded)
        lse = q.new_empty(b, h, s, dtype=torch.float32)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.head_dim = d
        return out[..., :d]

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        q, k, v, _out, _lse = ctx.saved_tensors
        b, s, h, d = q.shape
        grad = F.pad(grads[0], (0, d - ctx.head_dim)) if d != ctx.head_dim else grads[0]
        if not grad.is_contiguous() and grad.stride(-1) != 1:
            grad = grad.contiguous()
        rounded = _up(s, 128)
        dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
        softmax_d = q.new_empty(b, h, rounded, dtype=torch.float32)
        dq_accum = q.new_empty(b, rounded, h, _up(d, 32), dtype=torch.float32)
        if k.shape[2] != h:
            t, kv = k.shape[1], k.shape[2]
            dk_expanded, dv_expanded = k.new_empty(b, t, h, d), v.new_empty(b, t, h, d)
            torch.sum(dk_expanded.view(b, t, kv, h // kv, d), 3, out=dk)
            torch.sum(dv_expanded.view(b, t, kv, h // kv, d), 3, out=dv)
            del dk_expanded, dv_expanded
        del softmax_d, dq_accum
        return dq[..., : ctx.head_dim], dk[..., : ctx.head_dim], dv[..., : ctx.head_dim]


class EfficientAttention(torch.autograd.Function):
    """q, k, v [b, h, s, d] with an additive mask -> out [b, h, s, d], with the memory-efficient kernels' buffers."""

    @staticmethod
    def forward(ctx: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        b, h, s, _ = q.shape
        out = q.new_empty(b, s, h, v.shape[-1]).transpose(1, 2)
        lse = q.new_empty(b, h, _up(s, 32), dtype=torch.float32)
        ctx.save_for_backward(q, k, v, mask, out, lse)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, None]:
        del grads
        q, k, v, _mask, _out, _lse = ctx.saved_tensors
        b, h, s, d = q.shape
        dq, dk, dv = (x.new_empty(b, x.shape[2], h, x.shape[3]).transpose(1, 2) for x in (q, k, v))
        delta = q.new_empty(b, h, s, dtype=torch.float32)
        workspace = q.new_empty(b, h, s, d, dtype=torch.float32)
        del delta, workspace
        return dq, dk, dv, None


def scaled_dot_product_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """PyTorch's choice on Ampere and later in half precision: flash without a mask, memory-efficient with one.

    In float32 flash does not run, so the memory-efficient kernel takes it (no mask buffer then). Under autocast the
    inputs are cast first (scaled_dot_product_attention is in AT_FORALL_LOWER_PRECISION_FP of autocast_mode.h).
    """
    del dropout_p, is_causal, scale
    if torch.is_autocast_enabled("cpu"):
        q, k, v = (x.to(torch.get_autocast_dtype("cpu")) for x in (q, k, v))
    if attn_mask is None and q.dtype != torch.float32 and q.shape[-1] == v.shape[-1] <= 256:
        return applied(FlashAttention, q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)).transpose(1, 2)
    if enable_gqa and k.shape[1] != q.shape[1]:
        groups = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    if attn_mask is None:
        mask = q.new_empty(0)
    else:  # a boolean mask becomes an additive one of q's dtype, rows padded to 16 for alignment
        mask = torch.where(attn_mask, 0.0, float("-inf")).to(q.dtype) if attn_mask.dtype == torch.bool else attn_mask
    return applied(EfficientAttention, q, k, v, mask)


def flash_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """An attention function of transformers that behaves as flash_attention_2 does there.

    Windows and soft caps change no buffer. A float32 query (norms kept in float32) is cast to what autocast or the
    weights say, as transformers/integrations/flash_attention.py does.
    """
    del attention_mask, dropout, scaling, kwargs
    q, k, v = (x.transpose(1, 2) for x in (query, key, value))
    if q.dtype == torch.float32:
        target = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else _weights_dtype(module)
        q, k, v = q.to(target), k.to(target), v.to(target)
    width = v.shape[-1]
    if width != q.shape[-1]:  # multi-head latent attention pads the values to the width of the queries
        v = F.pad(v, (0, q.shape[-1] - width))
    return applied(FlashAttention, q, k, v)[..., :width], None


def _weights_dtype(module: torch.nn.Module) -> torch.dtype:
    for child in module.modules():
        if isinstance(child, torch.nn.Linear) and child.weight.dtype in (torch.bfloat16, torch.float16):
            return child.weight.dtype
    return torch.bfloat16


def _dropout(x: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> torch.Tensor:
    del inplace
    return torch.native_dropout(x, p, True)[0] if training and p > 0 else x


_FLOAT32_ON_CUDA = frozenset(
    {
        F.layer_norm, torch.layer_norm, F.group_norm, torch.group_norm, F.softplus, torch.rsqrt, torch.Tensor.rsqrt,
        torch.pow, torch.Tensor.pow, torch.Tensor.__pow__, torch.exp, torch.Tensor.exp, torch.log, torch.Tensor.log,
        torch.log1p, torch.expm1, torch.reciprocal, torch.logsumexp, torch.Tensor.logsumexp,
    }
)  # fmt: skip
_FLOAT32_UNLESS_TOLD = frozenset(
    {
        F.softmax, torch.softmax, torch.Tensor.softmax, F.log_softmax, torch.log_softmax, torch.Tensor.log_softmax,
        torch.cumsum, torch.Tensor.cumsum, torch.sum, torch.Tensor.sum, torch.cumprod, torch.prod,
    }
)  # fmt: skip
_HALF = (torch.bfloat16, torch.float16)


class CudaOperators(TorchFunctionMode):
    """While active, PyTorch functions take the path that they take on CUDA."""

    def __init__(self) -> None:
        super().__init__()
        self._replaced: dict[Any, Callable[..., Any]] = {
            F.scaled_dot_product_attention: scaled_dot_product_attention,
            F.dropout: _dropout,
        }

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        func = self._replaced.get(func, func)
        if not torch.is_autocast_enabled("cpu"):
            return func(*args, **kwargs)
        if func in _FLOAT32_ON_CUDA:
            args = tuple(_float32(x) for x in args)
            kwargs = {name: _float32(x) for name, x in kwargs.items()}
        elif func in _FLOAT32_UNLESS_TOLD and args and isinstance(args[0], torch.Tensor) and args[0].dtype in _HALF:
            kwargs = {"dtype": torch.float32} | {name: x for name, x in kwargs.items() if x is not None}
        return func(*args, **kwargs)


def _float32(x: Any) -> Any:
    return x.float() if isinstance(x, torch.Tensor) and x.dtype in _HALF else x


@contextlib.contextmanager
def autocast_as_on_cuda() -> Generator[None]:
    """Answer "is CUDA's autocast on?", which peft and transformers ask, by the CPU's, under which fake tensors run."""
    asked = torch.is_autocast_enabled
    with mock.patch("torch.is_autocast_enabled", lambda kind="cuda": asked("cpu" if kind == "cuda" else kind)):
        yield
