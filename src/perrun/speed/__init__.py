"""Speed of a job on a rig: named parts of one optimizer step, tokens per second, and their range."""

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from perrun.errors import MissingFact
from perrun.facts import tables
from perrun.facts.stacks import Stack
from perrun.physics import tokens
from perrun.setting import Setting
from perrun.shapes import Shape
from perrun.speed import step
from perrun.speed.card import Card, card, stacked, taken
from perrun.speed.step import LAWS, Law
from perrun.speed.work import Work, kernels_of, work

__all__ = [
    "EVERYWHERE",
    "LAWS",
    "Calibration",
    "Card",
    "Law",
    "Work",
    "as_padded",
    "card",
    "group",
    "processed_tokens_per_s",
    "shipped",
    "stacked",
    "taken",
    "time_lines",
    "tokens_per_s",
    "tokens_range",
    "work",
]


@dataclass(frozen=True, slots=True)
class Calibration:
    """A fit: the law's constants, and by group the factors on tokens/s that bound the 80 % range."""

    law: Law
    ranges: dict[str, tuple[float, float]]


EVERYWHERE = "all"


def group(setting: Setting, stack: Stack) -> str:
    """Group of settings that err alike: class of kernels, adapters or full, one node or several."""
    kernels = {"te": "te", "compiled": "compiled"}.get(kernels_of(setting, stack), "eager")
    method = "adapters" if setting.adapters else "full"
    nodes = "nodes" if np.any(np.asarray(setting.n_nodes) > 1) else "node"
    return f"{kernels}/{method}/{nodes}"


def parse(rows: Any) -> Calibration:
    """A Calibration from rows of parameter and value. Raises MissingFact when a constant is not there."""
    values = {row["parameter"]: float(row["value"]) for row in rows}
    missing = [name for name in Law.__slots__ if name not in values]
    if missing:
        raise MissingFact(f"the calibration lacks {', '.join(missing)}", hint="run perrun calibrate")
    lows = {name.removeprefix("low/"): value for name, value in values.items() if name.startswith("low/")}
    ranges = {name: (low, values[f"high/{name}"]) for name, low in lows.items()}
    return Calibration(Law(**{name: values[name] for name in Law.__slots__}), ranges)


@cache
def shipped() -> Calibration:
    """The fit that comes with perrun (facts/calibration.csv)."""
    return parse(tables.read("calibration"))


def time_lines(
    shape: Shape,
    setting: Setting,
    card: Card,
    stack: Stack,
    calibration: Calibration | None = None,
    stored_quantization: str | None = None,
) -> dict[str, Any]:
    """Named parts of one optimizer step over all GPUs in parallel [s]; they sum to the step's time.

    Numbers of `setting` and `card` may be arrays of one length. Raises UnsupportedByGpu for a precision that the card
    lacks. See docs/speed.md for the law.
    """
    asked = step.question(setting, card, stack)
    todo = work(shape, setting, stack, stored_quantization, step.domain(setting, card))
    return step.lines(todo, asked, (calibration or shipped()).law)


def as_padded(setting: Setting) -> Setting:
    """`setting` with mean_len as the GPU sees it: rows that are not packed are padded to the longest of their micro
    batch. For questions whose mean_len is the mean row; measured runs state it with padding."""
    if not setting.varying:
        return setting
    return setting.with_(mean_len=tokens.padded(setting.real_len, setting.seq_len, setting.micro_batch))


def tokens_per_s(setting: Setting, step_s: Any) -> Any:
    """Tokens per second over all GPUs as users count them: without padding, a preference pair counted once."""
    return setting.micro_batch * setting.real_len * setting.grad_accum * setting.data_parallel / step_s


def processed_tokens_per_s(setting: Setting, step_s: Any) -> Any:
    """Tokens per second over all GPUs as the GPU sees them: with padding."""
    return setting.micro_batch * setting.mean_len * setting.grad_accum * setting.data_parallel / step_s


def tokens_range(
    setting: Setting, stack: Stack, tokens_per_s: float, calibration: Calibration | None = None
) -> tuple[float, float]:
    """The 80 % range round an estimate of tokens/s."""
    ranges = (calibration or shipped()).ranges
    low, high = ranges.get(group(setting, stack), ranges[EVERYWHERE])
    return tokens_per_s * low, tokens_per_s * high
