"""Bytes of the parts of a training step that are not activations of layers: states, loss, slack, context."""

from typing import Any

import numpy as np

# Bytes of optimizer state per trained parameter, for parameters of 4 (fp32) bytes; adamw keeps its two moments in
# the dtype of the parameter; bitsandbytes' Lion keeps one in fp32. 8-bit: one byte a moment and one fp32 scale per
# block of 256 (bitsandbytes Optimizer2State, blockwise); 4-bit: torchao, block of 128. Adafactor keeps a row and a
# column per matrix (arXiv 1804.04235), which is nothing beside the weights. SGD as trained here has no momentum
# (torch default).
BLOCK_8BIT = 256
BLOCK_4BIT = 128

# Temporary of torch's foreach AdamW: the square root of the second moments of all parameters at once, one more copy
# of the trained weights (torch/optim/adam.py _multi_tensor_adam: exp_avg_sq_sqrt). Fused and paged kernels have none.


FP32_COPY = 4.0  # bytes of one more fp32 copy of a logit: the picking of log-probabilities in preference losses (TRL)


def optimizer_state_bytes(optimizer: str, dtype_bytes: float) -> float:
    """Bytes of state on the GPU per trained parameter of `dtype_bytes`; paged states live in host memory."""
    per_parameter = {
        "adamw": 2 * dtype_bytes,
        "paged-adamw-32bit": 0.0,
        "adamw-8bit": 2 * (1 + 4 / BLOCK_8BIT),
        "paged-adamw-8bit": 0.0,
        "adamw-4bit": 2 * (0.5 + 4 / BLOCK_4BIT),
        "adafactor": 0.0,
        "sgd": 0.0,
        "lion": 4.0,
        "lion-8bit": 1 + 4 / BLOCK_8BIT,
    }
    return per_parameter[optimizer]


def optimizer_host_bytes(optimizer: str) -> float:
    """Bytes of paged state in host memory per trained parameter."""
    return {"paged-adamw-32bit": 8.0, "paged-adamw-8bit": 2 * (1 + 4 / BLOCK_8BIT)}.get(optimizer, 0.0)


def optimizer_temporary_bytes(optimizer: str, implementation: str, dtype_bytes: float) -> float:
    """Bytes of temporaries per trained parameter while the optimizer steps."""
    if optimizer == "adamw" and implementation == "foreach":
        return dtype_bytes
    return 0.0


def loss_forward_bytes(vocab: float, loss: str, act: float, softcap: bool) -> float:
    """Bytes per token alive at the widest moment of the loss's forward, beyond the layers.

    plain: logits, their fp32 copy and the fp32 log-softmax. Source: transformers ForCausalLMLoss (logits.float(),
    cross_entropy). chunked: logits in one piece, loss by chunks. fused: nothing. softcap: the tanh of capped logits
    keeps its output.
    """
    if loss == "fused":
        return 0.0
    if loss in ("native", "inplace"):
        return vocab * act * (3 if loss == "native" else 1)
    fp32_copies = {"plain": 2, "triton": 1, "chunked": 0.25}[loss]
    return vocab * (act + 4.0 * fp32_copies + (act if softcap else 0.0))


def loss_backward_bytes(vocab: float, loss: str, act: float, held: float, softcap: bool) -> float:
    """Bytes per token alive at the widest moment of the loss's backward.

    plain: held logits, log-softmax, the gradient of the picked log-probabilities and the gradient of the logits,
    the last three in fp32: 14 bytes per token and word with bf16 logits kept, 12 without. triton (a fused
    cross-entropy kernel on stored logits): fp32 logits and their gradient: 10 and 8. Measured slopes of
    fms-acceleration-benchmarks: 14.0 and 10.0 (Mistral-7B, transformers 4.48, which keeps them), 12.0 and 8.0
    (PowerLM-3B, Llama-3-8B, transformers 4.45, which does not).
    """
    if loss == "fused":
        return 0.0
    if loss in ("native", "inplace"):
        return vocab * act * (4 if loss == "native" else 2)
    fp32_copies = {"plain": 3, "triton": 2, "chunked": 0.5}[loss]
    logits = 2 * act if loss == "chunked" else held
    return vocab * (logits + 4.0 * fp32_copies + (act if softcap else 0.0))


def loss_pool_bytes(vocab: float, loss: str, act: float) -> float:
    """Bytes per token of all distinct logits-sized tensors that one step makes, whether or not they live together.

    16-bit logits, their fp32 copy, log-softmax and two gradients in fp32 less what a fused kernel overwrites: about
    16 bytes per token and word whatever the kernel; `native` as in the backward. The allocator keeps blocks of that
    size apart. Measured: reserved less allocated of fms-acceleration-benchmarks and qwen-readme-profiling.
    """
    return vocab * {"native": 4 * act, "inplace": 2 * act}.get(loss, 16.0)


def fused_loss_bytes(vocab: float, hidden: float, tokens: Any, trains_head: bool, act: float) -> Any:
    """Bytes of a fused head and loss: one chunk of logits, the input's gradient, the losses, and dW if it is trained.

    Liger's fused linear cross entropy makes the gradients in the forward, by chunks of next_power_of_2(tokens /
    ceil(vocab / hidden)) tokens, in one buffer that their gradient overwrites. Source: linkedin/Liger-Kernel 0.8.5,
    ops/fused_linear_cross_entropy.py.
    """
    share = np.ceil(np.asarray(tokens, dtype=float) / np.ceil(vocab / hidden))
    chunk = np.minimum(2.0 ** np.ceil(np.log2(np.maximum(share, 1.0))), tokens)
    weight_gradient = vocab * hidden * act if trains_head else 0.0
    return chunk * vocab * act + tokens * (hidden * act + 4.0) + weight_gradient
