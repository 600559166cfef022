"""Bytes of live storages at every operator: what a caching allocator would call `allocated`.

A torch dispatch mode sees every operator that autograd or the model calls. Each storage that an operator returns
is counted once, rounded up to the allocator's block, and given back when the storage dies.
"""

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

BLOCK = 512  # bytes; kMinBlockSize in pytorch/pytorch:c10/cuda/CUDACachingAllocator.cpp


def blocks(n_bytes: int) -> int:
    """Bytes that the CUDA caching allocator hands out for a request of n_bytes: whole blocks of 512."""
    return -(-n_bytes // BLOCK) * BLOCK


@dataclass(frozen=True, slots=True)
class Born:
    """A storage as it was made: its bytes, the operator, and the shape and dtype of the first tensor on it."""

    key: int
    size: int
    op: str
    shape: tuple[int, ...]
    dtype: torch.dtype


class LiveStorages(TorchDispatchMode):
    """Counts live bytes, per named segment: the highest and the last.

    `enter(name)` begins a segment. `watch(tensor)` counts what existed before. `living_at_peak(name)` says which
    storages made the peak of a segment (from a log, so that nothing is copied while it runs).
    """

    def __init__(self) -> None:
        super().__init__()  # pyright: ignore[reportUnknownMemberType]
        self.now = 0
        self.peaks: dict[str, int] = {}
        self.ends: dict[str, int] = {}
        self._segment = ""
        self._live: dict[int, tuple[Born, Any]] = {}  # storage address -> birth, weak reference
        self._log: list[Born | int] = []  # births, and serial numbers of deaths
        self._at_peak: dict[str, int] = {}  # position in the log
        self._serial = 0

    def enter(self, segment: str) -> None:
        """Begin a segment; a segment entered again goes on counting."""
        self.leave()
        self._segment = segment
        self.peaks[segment] = max(self.now, self.peaks.get(segment, 0))
        self._at_peak.setdefault(segment, len(self._log))

    def leave(self) -> None:
        if self._segment:
            self.ends[self._segment] = self.now
        self._segment = ""

    def watch(self, tensor: torch.Tensor, op: str = "watched") -> int:
        """Count a tensor's storage; returns the serial number under which it lives."""
        storage = tensor.untyped_storage()
        address: int = storage._cdata  # pyright: ignore[reportPrivateUsage]
        known = self._live.get(address)
        if known is not None:
            return known[0].key
        self._serial += 1
        born = Born(self._serial, blocks(storage.nbytes()), op, tuple(tensor.shape), tensor.dtype)
        self._live[address] = (born, weakref.ref(storage, self._dying(address)))
        self._log.append(born)
        self.now += born.size
        if self._segment and self.now > self.peaks[self._segment]:
            self.peaks[self._segment] = self.now
            self._at_peak[self._segment] = len(self._log)
        return born.key

    def _dying(self, address: int) -> Callable[[Any], None]:
        def drop(_: Any) -> None:
            born, _reference = self._live.pop(address)
            self.now -= born.size
            self._log.append(born.key)

        return drop

    def living_at_peak(self, segment: str) -> list[Born]:
        """The storages that were live when the segment's bytes were highest."""
        living: dict[int, Born] = {}
        for event in self._log[: self._at_peak[segment]]:
            if isinstance(event, Born):
                living[event.key] = event
            else:
                living.pop(event, None)
        return list(living.values())

    def forget(self) -> None:
        """Drop the segments and the log; what lives goes on living."""
        self.leave()
        self.peaks, self.ends, self._at_peak = {}, {}, {}
        self._log = [born for born, _ in self._live.values()]

    def living(self) -> set[int]:
        """Serial numbers of what is live now."""
        return {born.key for born, _ in self._live.values()}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        if isinstance(out, torch.Tensor):
            self.watch(out, func.__name__)
        else:
            for item in tree_iter(out):
                if isinstance(item, torch.Tensor):
                    self.watch(item, func.__name__)
        return out
