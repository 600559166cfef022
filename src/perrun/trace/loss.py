"""Losses as training stacks make them: over all logits, by chunks, or fused with the head; and DPO's."""

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional as F

from perrun.errors import InvalidInput
from perrun.trace.net import Net, applied, base_of, decoder, head
from perrun.trace.recipe import Recipe

if TYPE_CHECKING:
    from perrun.trace.step import Request

Made = tuple[torch.Tensor, Any]
_TILE_TOKENS, _TILE_VOCABULARY = 4096, 32768  # TOKEN_CHUNK_SIZE, _CHUNKED_LOGPROB_CHUNK_SIZE of trl 1.16


def of(
    model: Net, reference: Net | None, tokens: torch.Tensor, recipe: Recipe, request: "Request",
    at_head: Callable[[], None],
) -> Made:  # fmt: skip
    """The loss of one micro batch, and what stays alive beside it until the backward is done.

    `at_head` is called where the head begins. Raises InvalidInput.
    """
    if request.objective in ("sft", "pretrain"):
        return _sft(model, tokens, recipe, at_head)
    if request.objective == "dpo":
        return _dpo(model, reference, tokens, recipe, at_head), None
    raise InvalidInput(f"objective {request.objective} is not traced", expected="sft, pretrain or dpo")


def _sft(model: Net, tokens: torch.Tensor, recipe: Recipe, at_head: Callable[[], None]) -> Made:
    if recipe.loss in ("fused", "tiled"):
        kernel = FusedLinearCrossEntropy if recipe.loss == "fused" else TiledLogProbabilities
        return _without_logits(kernel, model, tokens, at_head).sum(), None
    if recipe.loss == "chunked":
        return _chunked(model(input_ids=tokens).logits, tokens), None
    if recipe.logits.startswith("inline"):
        return _inline(model, tokens, recipe)
    if recipe.logits == "shifted":
        base_of(model).loss_function = _shifting_loss
    out = model(input_ids=tokens, labels=tokens)
    if recipe.outputs_float32:
        out.logits = out.logits.float()
    return out.loss, (out if recipe.keeps_logits else None)


def _inline(model: Net, tokens: torch.Tensor, recipe: Recipe) -> Made:
    """The loss inside the model's forward, where the head's input lives on, as before loss functions."""
    held: list[Any] = []

    def hold(_head: Any, inputs: tuple[Any, ...]) -> None:
        held.extend(inputs)

    hook = head(model).register_forward_pre_hook(hold)
    logits = model(input_ids=tokens).logits
    hook.remove()
    if recipe.logits == "inline_float":
        logits = logits.float()
    shifted = logits[..., :-1, :].contiguous()
    value = F.cross_entropy(shifted.view(-1, shifted.shape[-1]), tokens[..., 1:].contiguous().view(-1))
    del shifted
    held.clear()
    if recipe.outputs_float32:
        logits = logits.float()
    return value, (logits if recipe.keeps_logits else None)


def _without_logits(kernel: Any, model: Net, tokens: torch.Tensor, at_head: Callable[[], None]) -> torch.Tensor:
    """Values per token, made from the last hidden states and the head's weight in one kernel."""
    hidden = decoder(model)(input_ids=tokens).last_hidden_state
    at_head()
    return applied(kernel, hidden.reshape(-1, hidden.shape[-1]), head(model).weight, tokens.reshape(-1))


def _shifting_loss(logits: torch.Tensor, labels: torch.Tensor, vocab_size: int, **_: Any) -> torch.Tensor:
    """transformers <= 4.48: a contiguous copy of the float32 logits without the last position."""
    logits = logits.float()
    shifted = logits[..., :-1, :].contiguous().view(-1, vocab_size)
    return F.cross_entropy(shifted, labels[..., 1:].contiguous().view(-1))


def _chunked(logits: torch.Tensor, tokens: torch.Tensor, n_chunks: int = 8) -> torch.Tensor:
    """All logits, float32 by chunks (pytorch/torchtune:torchtune/modules/loss/ce_chunked_output_loss.py)."""
    parts = logits.reshape(-1, logits.shape[-1]).chunk(n_chunks)
    targets = tokens.reshape(-1).chunk(n_chunks)
    del logits
    losses = [F.cross_entropy(p.float(), t, reduction="sum") for p, t in zip(parts, targets, strict=True)]
    return torch.stack(losses).sum()


def _dpo(
    model: Net, reference: Net | None, tokens: torch.Tensor, recipe: Recipe, at_head: Callable[[], None]
) -> torch.Tensor:
    """DPO, chosen and rejected rows in one batch: policy, then reference (huggingface/trl:dpo_trainer.py)."""
    policy = _row_log_probabilities(model, tokens, recipe, at_head)
    frozen = contextlib.nullcontext() if reference is not None else model.disable_adapter()
    with torch.no_grad(), frozen:
        expected = _row_log_probabilities(reference or model, tokens, recipe, at_head)
    chosen, rejected = (policy - expected).chunk(2)
    return -F.logsigmoid(0.1 * (chosen - rejected)).mean()


def _row_log_probabilities(
    model: Net, tokens: torch.Tensor, recipe: Recipe, at_head: Callable[[], None]
) -> torch.Tensor:
    """Sum of the tokens' log probabilities per row: tiled (trl >= 1.16), or over all logits (trl 0.12 to 1.15)."""
    if recipe.loss in ("fused", "tiled"):
        return _without_logits(TiledLogProbabilities, model, tokens, at_head).view(tokens.shape).sum(-1)
    logits = model(input_ids=tokens).logits
    if recipe.outputs_float32:
        logits = logits.float()
    shifted = logits[..., :-1, :].contiguous()
    return _selective_log_softmax(shifted, tokens[..., 1:]).sum(-1)


def _selective_log_softmax(logits: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """trl/trainer/utils.py selective_log_softmax: float32 by gather and logsumexp, half precision row by row."""
    if logits.dtype == torch.float32:
        selected = torch.gather(logits, -1, index.unsqueeze(-1)).squeeze(-1)
        return selected - torch.stack([torch.logsumexp(row, dim=-1) for row in logits])
    rows = [
        torch.gather(F.log_softmax(row, dim=-1), -1, target.unsqueeze(-1)).squeeze(-1)
        for row, target in zip(logits, index, strict=True)
    ]
    return torch.stack(rows)


def _compute_dtype(hidden: torch.Tensor) -> torch.dtype:
    return torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else hidden.dtype


class FusedLinearCrossEntropy(torch.autograd.Function):
    """hidden [T, H], weight [V, H], targets [T] -> losses [T]; the gradients are made in the forward, by chunks.

    Buffers as in linkedin/Liger-Kernel:src/liger_kernel/ops/fused_linear_cross_entropy.py (0.8.5): one buffer for
    the logits of next_power_of_2(T / ceil(V / H)) tokens in the dtype of the product, overwritten by their gradient;
    grad_input like hidden; grad_weight like weight when the head is trained. Under autocast the kernel's inputs are
    cast first (amp_custom_fwd). To 0.7 two chunks of logits were alive at once, and a trained head's gradient was
    summed through a float32 temporary of its size.
    """

    @staticmethod
    def forward(ctx: Any, hidden: torch.Tensor, weight: torch.Tensor, _targets: torch.Tensor) -> torch.Tensor:
        ctx.dtypes = hidden.dtype, weight.dtype
        dtype = _compute_dtype(hidden)
        hidden, weight = hidden.to(dtype), weight.to(dtype)
        tokens, width = hidden.shape
        chunk = min(_next_power_of_2(-(-tokens // -(-weight.shape[0] // width))), tokens)
        grad_input = torch.zeros_like(hidden)
        grad_weight = torch.zeros_like(weight) if ctx.needs_input_grad[1] else None
        losses = hidden.new_zeros(tokens, dtype=torch.float32)
        buffer = hidden.new_empty(chunk, weight.shape[0])
        for start in range(0, tokens, chunk):
            part = hidden[start : start + chunk]
            logits = buffer[: part.shape[0]]
            torch.mm(part, weight.t(), out=logits)
            torch.mm(logits, weight, out=grad_input[start : start + chunk])
            if grad_weight is not None:
                torch.addmm(grad_weight, logits.t(), part, out=grad_weight)
        ctx.save_for_backward(grad_input, grad_weight)
        return losses

    @staticmethod
    def backward(ctx: Any, *_grads: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None, None]:
        grad_input, grad_weight = ctx.saved_tensors
        hidden_dtype, weight_dtype = ctx.dtypes
        return grad_input.to(hidden_dtype), None if grad_weight is None else grad_weight.to(weight_dtype), None


class TiledLogProbabilities(torch.autograd.Function):
    """hidden [T, H], weight [V, H], targets [T] -> log probabilities [T], tile by tile, recomputed in the backward.

    Buffers as in huggingface/trl:trl/kernels/chunked_logprob.py (1.16): one tile of at most 4096 tokens x 32768
    words; seven statistics per token; in the backward the tile again and float32 sums of both gradients.
    """

    @staticmethod
    def forward(ctx: Any, hidden: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        tokens, words = hidden.shape[0], weight.shape[0]
        dtype = _compute_dtype(hidden)
        statistics = [hidden.new_zeros(tokens, dtype=torch.float32) for _ in range(7)]
        tile = hidden.new_empty(min(tokens, _TILE_TOKENS), _TILE_VOCABULARY, dtype=dtype)
        for start in range(0, tokens, _TILE_TOKENS):
            part = hidden[start : start + _TILE_TOKENS].to(dtype)
            for word in range(0, words, _TILE_VOCABULARY):
                weight[word : word + _TILE_VOCABULARY].to(dtype)
            del part
        ctx.save_for_backward(hidden, weight, targets, statistics[0])
        del tile
        return statistics[1] - statistics[0]

    @staticmethod
    def backward(ctx: Any, *_grads: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None, None]:
        hidden, weight, _targets, _log_z = ctx.saved_tensors
        dtype = _compute_dtype(hidden)
        grad_hidden = torch.zeros_like(hidden, dtype=torch.float32)
        grad_weight = torch.zeros_like(weight, dtype=torch.float32) if ctx.needs_input_grad[1] else None
        tile = hidden.new_empty(min(hidden.shape[0], _TILE_TOKENS), _TILE_VOCABULARY, dtype=dtype)
        for start in range(0, hidden.shape[0], _TILE_TOKENS):
            part = hidden[start : start + _TILE_TOKENS].to(dtype)
            for word in range(0, weight.shape[0], _TILE_VOCABULARY):
                weight[word : word + _TILE_VOCABULARY].to(dtype)
            del part
        del tile
        return grad_hidden.to(hidden.dtype), None if grad_weight is None else grad_weight.to(weight.dtype), None


def _next_power_of_2(n: int) -> int:
    return 1 << (n - 1).bit_length()
