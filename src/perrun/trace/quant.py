"""Quantised bases as bitsandbytes stores and runs them: its own modules and peft's own adapters, on fake tensors.

NF4 with double quantisation (bitsandbytes/functional.py quantize_4bit, QuantState): packed weights uint8 [N/2, 1];
absmax uint8, one per 64 weights; nested absmax float32, one per 256 of those; offset and 16-entry code book per
layer; one 256-entry code book for the process. LLM.int8: int8 weights and SCB float32, one per row.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from perrun.errors import Unavailable

_BLOCK, _NESTED = 64, 256


def _bitsandbytes() -> Any:
    try:
        import bitsandbytes
    except ImportError as error:
        raise Unavailable("tracing a quantised base needs bitsandbytes", hint="pip install 'perrun[trace]'") from error
    return bitsandbytes


def _replace(model: nn.Module, **options: Any) -> nn.Module:
    from transformers import BitsAndBytesConfig
    from transformers.integrations.bitsandbytes import replace_with_bnb_linear
    from transformers.quantizers.base import get_keys_to_not_convert

    _bitsandbytes()
    keep = get_keys_to_not_convert(model)
    return replace_with_bnb_linear(model, keep, BitsAndBytesConfig(**options))


def to_4bit(model: nn.Module) -> nn.Module:
    """Linear layers but the head become NF4 with double quantisation, computing in bf16."""
    model = _replace(
        model,
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.bfloat16,
    )
    model.is_loaded_in_4bit = True
    for module in model.modules():
        if isinstance(module, _bitsandbytes().nn.Linear4bit):
            module.weight_shape = (module.out_features, module.in_features)
            packed = -(-module.out_features * module.in_features // 2)
            old, module.weight = module.weight, _packed(packed)
            for name in ("compress_statistics", "quant_type"):  # what peft reads from a 4-bit weight
                setattr(module.weight, name, getattr(old, name))
            _bias_dtype(module, model)
    return model


def _packed(n_bytes: int) -> nn.Parameter:
    return nn.Parameter(torch.empty(n_bytes, 1, dtype=torch.uint8, device="meta"), requires_grad=False)


def _bias_dtype(module: nn.Module, model: nn.Module) -> None:
    if module.bias is not None:
        module.bias = nn.Parameter(module.bias.to(model.dtype), requires_grad=False)


def prepare(model: nn.Module, kind: str) -> None:
    """peft's preparation of a k-bit base; for `norms` also what TRL undid of it."""
    from peft import prepare_model_for_kbit_training

    prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
    if kind == "norms":
        for name, parameter in model.named_parameters():
            if parameter.dtype == torch.float32 and "norm" not in name:
                parameter.data = parameter.data.to(torch.bfloat16)


def materialise(model: nn.Module, watch: Callable[[torch.Tensor, str], Any]) -> None:
    """Quantisation states of the model's layers as fake tensors."""
    shared: torch.Tensor | None = None
    for layer in model.modules():
        if isinstance(layer, Int8Mixin):
            layer.scb = torch.empty(layer.out_features)
            watch(layer.scb, "weights")
        if not hasattr(layer, "weight_shape"):
            continue
        if shared is None:
            shared = torch.empty(256)
            watch(shared, "weights")
        state = _nf4_state(layer.weight_shape, shared)
        layer.weight.quant_state = state
        layer.quant_state = state
        for tensor in (state.absmax, state.code, state.offset, state.state2.absmax):
            watch(tensor, "weights")


def _nf4_state(shape: tuple[int, int], shared_code: torch.Tensor) -> Any:
    from bitsandbytes.functional import QuantState

    n = -(-shape[0] * shape[1] // _BLOCK)
    nested = QuantState(torch.empty(-(-n // _NESTED)), code=shared_code, blocksize=_NESTED, dtype=torch.float32)
    return QuantState(
        torch.empty(n, dtype=torch.uint8),
        shape=torch.Size(shape),
        code=torch.empty(16),
        blocksize=_BLOCK,
        quant_type="nf4",
        dtype=torch.bfloat16,
        offset=torch.empty(()),
        state2=nested,
    )


@contextlib.contextmanager
def dequantisable() -> Iterator[None]:
    """Let peft's DoRA dequantise our layers, whose weights are no Params4bit (that class cannot hold a fake tensor)."""
    from peft.tuners.lora import dora

    theirs = dora.dequantize_module_weight

    def ours(module: nn.Module) -> torch.Tensor:
        if not hasattr(module, "weight_shape"):
            return theirs(module)
        if module.weight.is_meta:
            return torch.empty(module.weight_shape, dtype=torch.bfloat16, device="meta")
        from bitsandbytes.functional import dequantize_4bit

        return dequantize_4bit(module.weight.data, module.weight.quant_state)

    dora.dequantize_module_weight = ours
    try:
        yield
    finally:
        dora.dequantize_module_weight = theirs


class Int8Mixin:
    """Marks a layer that runs as `Int8Matmul`; `scb` holds its row scales."""

    scb: torch.Tensor
    out_features: int


def to_8bit(model: nn.Module) -> nn.Module:
    """Linear layers but the head become LLM.int8 layers (threshold 6, no outlier columns: how many is data)."""
    model = _replace(model, load_in_8bit=True)
    model.is_loaded_in_8bit = True
    kind = type("Linear8bitLt", (Int8Mixin, _bitsandbytes().nn.Linear8bitLt), {"forward": _int8_forward})
    for module in model.modules():
        if isinstance(module, _bitsandbytes().nn.Linear8bitLt):
            shape = module.weight.shape
            module.weight = nn.Parameter(torch.empty(shape, dtype=torch.int8, device="meta"), requires_grad=False)
            module.__class__ = kind
            _bias_dtype(module, model)
    return model


def _int8_forward(self: Any, x: torch.Tensor) -> torch.Tensor:
    return Int8Matmul.apply(x, self.weight, self.scb, self.bias)  # type: ignore[no-any-return]


class Int8Matmul(torch.autograd.Function):
    """x [.., in] times an int8 weight, with the buffers of bitsandbytes' MatMul8bitLt on CUDA.

    Forward: x in float16, |x| and the outlier mask, int8 x with a float32 scale per row, int32 product, float16
    product, cast to x's dtype. The input is kept on `ctx`, not among the saved tensors: non-reentrant checkpointing
    cannot drop it. Backward: the weight dequantised to x's dtype.
    (bitsandbytes/autograd/_functions.py, backends/cuda/ops.py 0.49)
    """

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, weight: torch.Tensor, scb: torch.Tensor, bias: torch.Tensor | None
    ) -> torch.Tensor:
        shape = x.shape
        flat = x.reshape(-1, shape[-1])
        half = flat.to(torch.float16)
        outliers = half.abs() >= 6.0
        int8 = torch.empty_like(half, dtype=torch.int8)
        scales = flat.new_empty(flat.shape[0], dtype=torch.float32)
        del half, outliers
        product = flat.new_empty(flat.shape[0], weight.shape[0], dtype=torch.int32)
        out = product.to(torch.float16)
        if bias is not None:
            out.add_(bias)
        out = out.to(x.dtype)
        del int8, scales, product
        ctx.kept = (flat, weight, scb)
        ctx.shape = shape
        return out.reshape(*shape[:-1], weight.shape[0])

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        flat, weight, scb = ctx.kept
        grad = grads[0].reshape(-1, grads[0].shape[-1]).contiguous()
        dequantised = weight.to(flat.dtype, copy=True).mul_(scb.unsqueeze(1).mul(1.0 / 127.0))
        return torch.matmul(grad.to(flat.dtype), dequantised).view(ctx.shape), None, None, None
