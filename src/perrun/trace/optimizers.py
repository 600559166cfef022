"""Optimizer states and temporaries: PyTorch's own optimizers, and stand-ins for bitsandbytes' kernels."""

from collections.abc import Iterable
from typing import Any

import torch

from perrun.errors import InvalidInput

_SMALL = 4096  # elements; min_8bit_size of bitsandbytes/optim/optimizer.py
_PAGED = 100_000  # elements from which a state is paged (get_state_buffer)
_STATES = {"adamw": 2, "lion": 1, "sgd": 0}


class BlockwiseOptimizer:
    """States as bitsandbytes makes them at the first step; its update kernels allocate nothing.

    8 bits: one byte an element and state, absmax float32 per 256 elements, tensors below 4096 elements in float32.
    Paged states live in managed memory that PyTorch's allocator does not see (tensors below 100000 elements stay).
    """

    def __init__(self, parameters: Iterable[torch.nn.Parameter], states: int, bits: int, paged: bool) -> None:
        self.parameters = list(parameters)
        self.states, self.bits, self.paged = states, bits, paged
        self.state: dict[int, list[torch.Tensor]] = {}

    def step(self) -> None:
        for parameter in self.parameters:
            if parameter.grad is not None and id(parameter) not in self.state:
                self.state[id(parameter)] = self._states_of(parameter)

    def _states_of(self, parameter: torch.nn.Parameter) -> list[torch.Tensor]:
        n = parameter.numel()
        eight = self.bits == 8 and n >= _SMALL
        made: list[torch.Tensor] = []
        for _ in range(self.states):
            if not (self.paged and n >= _PAGED):
                made.append(torch.zeros_like(parameter, dtype=torch.uint8 if eight else torch.float32))
            if eight:
                made.append(parameter.new_zeros(-(-n // 256), dtype=torch.float32))
        return made


def make(kind: str, implementation: str, parameters: Iterable[torch.nn.Parameter]) -> Any:
    """The optimizer of a job by our name and its implementation (foreach, fused, loop). Raises InvalidInput."""
    trained = [p for p in parameters if p.requires_grad]
    how: dict[str, Any] = {"foreach": implementation == "foreach", "fused": implementation == "fused"}
    if kind == "adamw":
        return torch.optim.AdamW(trained, lr=1e-4, **how)
    if kind == "sgd":
        return torch.optim.SGD(trained, lr=1e-4, **how)  # as transformers Trainer makes it: no momentum
    if kind == "adafactor":
        from transformers.optimization import Adafactor

        return Adafactor(trained, scale_parameter=False, relative_step=False, lr=1e-4)
    if kind in ("adamw-8bit", "paged-adamw-8bit"):
        return BlockwiseOptimizer(trained, 2, 8, kind.startswith("paged"))
    if kind == "paged-adamw-32bit":
        return BlockwiseOptimizer(trained, 2, 32, True)
    if kind in ("lion", "lion-8bit"):
        return BlockwiseOptimizer(trained, 1, 8 if kind.endswith("8bit") else 32, False)
    raise InvalidInput(
        f"optimizer {kind} is not traced",
        expected="adamw, adamw-8bit, paged-adamw-8bit, paged-adamw-32bit, adafactor, sgd, lion, lion-8bit",
    )
