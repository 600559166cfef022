"""Bytes of weights by how they are stored."""

from typing import Any

DTYPE_BYTES = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "int8": 1.0}

NF4_BLOCK = 64
NF4_NESTED_BLOCK = 256
INT8_SCALE_BYTES = 4


def nf4_bytes_per_weight(double_quantisation: bool = True) -> float:
    """Bytes of one weight in 4-bit NormalFloat with block scales.

    0.5 for the code, and per block of 64 one absmax: fp32 (4 / 64), or with double quantisation one byte plus an
    fp32 scale per 256 of those (1 / 64 + 4 / (64 * 256)): 0.127 bits x 8, i.e. 4.127 bits per weight.
    Source: QLoRA, arXiv 2305.14314 section 3; storage layout of bitsandbytes Params4bit (quant_state).
    """
    if not double_quantisation:
        return 0.5 + 4 / NF4_BLOCK
    return 0.5 + 1 / NF4_BLOCK + 4 / (NF4_BLOCK * NF4_NESTED_BLOCK)


def int8_bytes(weights: float, rows: float) -> float:
    """Bytes of a matrix in LLM.int8(): one byte a weight and one fp32 scale (SCB) per output row.

    Source: LLM.int8(), arXiv 2208.07339; bitsandbytes Int8Params (CB int8 [out, in], SCB fp32 [out]).
    """
    return weights + INT8_SCALE_BYTES * rows


def gptq_bytes_per_weight(bits: int = 4, group: int = 128) -> float:
    """Bytes of one weight in GPTQ/AWQ layout: packed codes, fp16 scale and packed zero per group of inputs.

    Source: AutoGPTQ QuantLinear (qweight int32, scales fp16 [in / group, out], qzeros packed).
    """
    return bits / 8 + (2 + bits / 8) / group


def weight_bytes(weights: float, rows: float, storage: str) -> float:
    """Bytes of one matrix of `weights` weights and `rows` output rows, stored as `storage`.

    storage: fp32, bf16, fp16, fp8 (dtypes), nf4, gptq or int8.
    """
    laws: dict[str, Any] = {
        "nf4": lambda: weights * nf4_bytes_per_weight(),
        "gptq": lambda: weights * gptq_bytes_per_weight(),
        "int8": lambda: int8_bytes(weights, rows),
    }
    return laws[storage]() if storage in laws else weights * DTYPE_BYTES[storage]
