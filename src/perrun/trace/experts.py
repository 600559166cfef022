"""Routed experts: as transformers 5 runs them (one tensor, grouped products), or as modules, one per expert.

transformers 5 holds all experts of a layer in one parameter and multiplies by groups: no shape depends on the data,
neither 4-bit loading nor "all-linear" adapters reach the tensor. Before, each expert was a module of linear layers
(`modules`), which both reached; a loop gave each expert its tokens. How many is data: the trace gives every expert
the same share, tokens x top_k / experts.
"""

import contextlib
from collections.abc import Generator
from typing import Any
from unittest import mock

import torch
from torch import nn

from perrun.trace.net import Net


@contextlib.contextmanager
def grouped_products() -> Generator[None]:
    """Take the fallback for weights that PyTorch's fake grouped product refuses (it knows bf16 alone)."""

    def bf16_only(_input: torch.Tensor, weight: torch.Tensor, _offsets: torch.Tensor) -> bool:
        return weight.dtype == torch.bfloat16

    with mock.patch("transformers.integrations.moe._can_use_grouped_mm", bf16_only):
        yield


def as_modules(model: Net) -> None:
    """Replace each gated tensor of experts by one module per expert, as transformers 4 had them.

    Tensors with biases stay (gpt_oss: transformers 4 held them as one tensor too).
    """
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            weight = getattr(child, "down_proj", None)
            tensors = hasattr(child, "gate_up_proj") and isinstance(weight, nn.Parameter) and weight.ndim == 3
            if tensors and not getattr(child, "has_bias", False):
                setattr(parent, name, ExpertModules(child))


class Expert(nn.Module):
    """One gated expert."""

    def __init__(self, hidden: int, intermediate: int, act: Any, dtype: torch.dtype) -> None:
        super().__init__()
        kind: dict[str, Any] = {"bias": False, "device": "meta", "dtype": dtype}
        self.gate_proj = nn.Linear(hidden, intermediate, **kind)
        self.up_proj = nn.Linear(hidden, intermediate, **kind)
        self.down_proj = nn.Linear(intermediate, hidden, **kind)
        self.act_fn = act

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


class ExpertModules(nn.ModuleList):
    """A loop over experts with balanced routing (MixtralSparseMoeBlock of transformers 4.48)."""

    def __init__(self, tensors: Net) -> None:
        weight = tensors.down_proj  # [experts, hidden, intermediate]
        count, hidden, intermediate = weight.shape
        super().__init__(Expert(hidden, intermediate, tensors.act_fn, weight.dtype) for _ in range(count))

    def forward(self, x: torch.Tensor, chosen: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        tokens = x.shape[0]
        total = torch.zeros_like(x)
        mask = nn.functional.one_hot(chosen, num_classes=len(self)).permute(2, 1, 0)
        share = tokens * chosen.shape[-1] // len(self)
        for expert in self:
            rows = mask.new_zeros(share)
            state = x[None, rows].reshape(-1, x.shape[-1])
            out = expert(state) * weights[rows, rows * 0, None]
            total.index_add_(0, rows, out.to(x.dtype))
        return total
