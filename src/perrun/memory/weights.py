"""How weights are held: storage of the base, what is trained and in which dtype, and how a layer's numbers run."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from perrun.facts.stacks import Stack
from perrun.physics import activations, params, quant
from perrun.setting import Setting
from perrun.shapes import Layer, Linear, Shape


@dataclass(frozen=True, slots=True)
class Weights:
    """How the parts of the model are stored: bytes of one GPU before sharding."""

    base: Any
    trained: Any
    trains_base: bool
    base_dtype: str
    base_is_quantised: bool
    trained_dtype: float
    largest_matrix: float
    matmul_params: float


def base_storage(setting: Setting, stack: Stack, stored_quantization: str | None) -> str:
    """Storage of the big matrices: nf4, int8, gptq (as published), fp8, or a dtype.

    A frozen base under mixed precision stays in fp32 as full weights do (the evidence schema: bf16-mixed means fp32
    weights); TransformerEngine stacks keep it in FP8 when they train in FP8 or below.
    """
    if setting.method in ("qlora", "qdora"):
        return "gptq" if stored_quantization in ("gptq", "awq") else "nf4"
    if setting.method == "lora-int8":
        return "int8"
    if setting.adapters and setting.precision in LOW_PRECISION:
        return "fp8" if stack.kernels == "te" else "bf16"
    mixed = setting.precision in ("bf16-mixed", "fp16-mixed") and not (setting.adapters and stack.master_weights)
    return "fp32" if mixed or setting.precision == "fp32" else "bf16"


LOW_PRECISION = ("fp8", "mxfp8", "nvfp4")


def _matrices(shape: Shape) -> list[tuple[Layer, Linear]]:
    return [(layer, m) for layer in shape.layers for m in layer.linears]


def weights(shape: Shape, setting: Setting, stack: Stack, stored_quantization: str | None) -> Weights:
    """Bytes and counts of base and trained weights on one GPU, unsharded."""
    storage = base_storage(setting, stack, stored_quantization)
    total = float(shape.total_params)
    matrices = _matrices(shape)
    experts = float(sum(layer.count * m.params for layer, m in matrices if m.role == "expert"))
    elsewhere = experts * (1.0 - 1.0 / np.asarray(setting.ep, dtype=float))  # experts that other ranks hold
    if setting.adapters:
        trained = params.adapters_total(
            shape, setting.lora_targets, setting.lora_rank, "dora" in setting.method, stack.adapts_experts
        )
    else:
        trained = total - elsewhere
    trained_dtype = 4.0 if (setting.adapters and stack.adapter_dtype == "fp32") else 2.0
    upcast = stack.fsdp_upcasts and setting.sharding in ("fsdp", "fsdp2") and setting.precision != "fp32"
    if not setting.adapters and (storage == "fp32" or upcast):
        trained_dtype = 4.0
    quantised = storage in ("nf4", "gptq", "int8")
    largest = max((m.in_features * m.out_features for _, m in matrices), default=0)
    matmul = sum(layer.count * m.weights for layer, m in matrices) + shape.hidden_size * shape.vocab_size
    if quantised:
        count, rows = params.quantisable(shape, experts=stack.quantises_experts)
        rest = total - count
        # k-bit preparation turns what is not quantised to fp32
        base = quant.weight_bytes(count, rows, storage) + rest * (4.0 if stack.kbit_upcast == "all" else 2.0)
    else:
        base = 0.0 if not setting.adapters else (total - elsewhere) * quant.DTYPE_BYTES[storage]
    return Weights(base, trained, not setting.adapters, storage, quantised, trained_dtype, largest, matmul)


def _adapted(setting: Setting, stack: Stack) -> Callable[[Linear], bool]:
    if not setting.adapters:
        return lambda _: False
    return lambda m: params.targeted(m, setting.lora_targets, stack.adapts_experts)


def regime(setting: Setting, stack: Stack, storage: str) -> activations.Regime:
    """How numbers are held inside a layer under this setting and stack."""
    mixed = setting.precision in ("bf16-mixed", "fp16-mixed", "fp8", "mxfp8", "nvfp4") and not setting.adapters
    fp32 = setting.precision == "fp32"
    # FSDP's mixed precision casts the prepared fp32 norms back: measured equal with and without preparation
    prepared = stack.kbit_upcast != "no" and setting.sharding not in ("fsdp", "fsdp2")
    upcast = prepared and storage in ("nf4", "int8", "gptq")
    te = stack.kernels in ("te", "compiled")
    return activations.Regime(
        act=4.0 if fp32 or (upcast and not te) else 2.0,
        residual=4.0 if fp32 or upcast or (mixed and not te) else 2.0,
        autocast=(stack.autocast or mixed) and not fp32 and not te,
        trains_base=not setting.adapters,
        adapted=_adapted(setting, stack),
        merges_experts=stack.adapts_experts,
        fp32=fp32,
        dora="dora" in setting.method,
        hook_free_inputs=storage == "int8" and not stack.reentrant,
        adapter_fp32=stack.adapter_dtype == "fp32",
        dropout=stack.lora_dropout > 0,
        base=storage,
        kernels="compiled" if setting.compile and stack.kernels == "eager" else stack.kernels,
        attention=setting.attention,
        base_saves_inputs=storage == "int8" or (storage == "nf4" and stack.kbit_saves_inputs),
        grouped_experts=not stack.quantises_experts,  # stacks on transformers 4 hold experts as modules in a loop
    )
