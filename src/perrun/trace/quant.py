"""Quantised bases as bitsandbytes stores and runs them: its own modules and peft's own adapters, on fake tensors.

NF4 with double quantisation (bitsandbytes/functional.py quantize_4bit, QuantState): packed weights uint8 [N/2, 1];
absmax uint8, one per 64 weights; nested absmax float32, one per 256 of those; offset and 16-entry code book per
layer; one 256-entry code book for the process. LLM.int8: int8 weights and SCB float32, one per row.
"""

import contextlib
from collections.abc import Callable, Generator
from typing import Any

import torch
from torch import nn

from perrun.errors import UnsupportedModel
from perrun.trace.net import Net, applied, library

_BLOCK, _NESTED = 64, 256


def _replace(model: Net, kind: str, **options: Any) -> list[Any]:
    """Turn linear layers into bitsandbytes' as transformers does when it loads; returns the new layers."""
    layer = getattr(library("bitsandbytes").nn, kind)
    keep = library("transformers.quantizers.base").get_keys_to_not_convert(model)
    config = library("transformers").BitsAndBytesConfig(**options)
    library("transformers.integrations.bitsandbytes").replace_with_bnb_linear(model, keep, config)
    found = [module for module in model.modules() if isinstance(module, layer)]
    if not found:
        raise UnsupportedModel(f"transformers finds no linear layer to quantise in {type(model).__name__}")
    for module in found:
        if module.bias is not None:
            module.bias = nn.Parameter(module.bias.to(model.dtype), requires_grad=False)
    return found


def to_4bit(model: Net) -> Net:
    """Linear layers but the head become NF4 with double quantisation, computing in bf16. Raises UnsupportedModel."""
    layers = _replace(
        model,
        "Linear4bit",
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.bfloat16,
    )
    model.is_loaded_in_4bit = True
    for layer in layers:
        layer.weight_shape = (layer.out_features, layer.in_features)
        packed = -(-layer.out_features * layer.in_features // 2)
        old = layer.weight
        layer.weight = nn.Parameter(torch.empty(packed, 1, dtype=torch.uint8, device="meta"), requires_grad=False)
        for name in ("compress_statistics", "quant_type"):  # what peft reads from a 4-bit weight
            setattr(layer.weight, name, getattr(old, name))
    return model


def prepare(model: Net, kind: str) -> None:
    """peft's preparation of a k-bit base; for `norms` also what trl undid of it."""
    library("peft").prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
    if kind == "norms":
        for name, parameter in model.named_parameters():
            if parameter.dtype == torch.float32 and "norm" not in name:
                parameter.data = parameter.data.to(torch.bfloat16)


def materialise(model: Net, watch: Callable[[torch.Tensor, str], Any]) -> None:
    """Quantisation states of the model's layers as fake tensors."""
    shared: torch.Tensor | None = None
    for layer in model.modules():
        if hasattr(layer, "scb"):
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
    state = library("bitsandbytes.functional").QuantState
    n = -(-shape[0] * shape[1] // _BLOCK)
    nested = state(torch.empty(-(-n // _NESTED)), code=shared_code, blocksize=_NESTED, dtype=torch.float32)
    return state(
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
def dequantisable() -> Generator[None]:
    """Let peft's DoRA dequantise our layers, whose weights are no Params4bit (that class cannot hold a fake tensor)."""
    dora = library("peft.tuners.lora.dora")
    theirs = dora.dequantize_module_weight

    def ours(module: Any) -> torch.Tensor:
        if not hasattr(module, "weight_shape"):
            return theirs(module)
        if module.weight.is_meta:
            return torch.empty(module.weight_shape, dtype=torch.bfloat16, device="meta")
        return library("bitsandbytes.functional").dequantize_4bit(module.weight.data, module.weight.quant_state)

    dora.dequantize_module_weight = ours
    try:
        yield
    finally:
        dora.dequantize_module_weight = theirs


def to_8bit(model: Net) -> Net:
    """Linear layers but the head become LLM.int8 layers (threshold 6, no outlier columns: how many is data)."""
    layers = _replace(model, "Linear8bitLt", load_in_8bit=True)
    model.is_loaded_in_8bit = True
    kind = type("Linear8bitLt", (library("bitsandbytes").nn.Linear8bitLt,), {"forward": _int8_forward, "scb": None})
    for layer in layers:
        empty = torch.empty(layer.weight.shape, dtype=torch.int8, device="meta")
        layer.weight = nn.Parameter(empty, requires_grad=False)
        layer.__class__ = kind
    return model


def _int8_forward(self: Any, x: torch.Tensor) -> torch.Tensor:
    return applied(Int8Matmul, x, self.weight, self.scb, self.bias)


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
