"""One measured row against its prediction: the row of the answer, and the points that are scored."""

from collections.abc import Callable, Iterator
from typing import Any

from perrun.errors import PerrunError
from perrun.runs import Settings, Skipped
from perrun.terms import Estimate, Memory, Run
from perrun.validation.scores import Point

Estimator = Callable[[Settings], Estimate]

# What a published kind of memory is compared with. Where the kind is not stated, reserved lies in the middle.
COMPARED = {
    "allocated": "allocated_gib",
    "active": "allocated_gib",
    "reserved": "reserved_gib",
    "nvidia-smi": "device_gib",
    "unknown": "reserved_gib",
}
FIGURES = ("allocated_gib", "reserved_gib", "device_gib")
MEMORY_FIELDS = (*FIGURES, "low_gib", "high_gib", "fits_probability")
SPEED_FIELDS = ("tokens_per_s", "tokens_per_s_low", "tokens_per_s_high")


class Row:
    """A run, its prediction if there is one, and why not otherwise."""

    def __init__(self, run: Run, question: Settings | None, estimate: Estimate | None, skipped: str | None) -> None:
        self.run = run
        self.question = question
        self.estimate = estimate
        self.skipped = skipped

    def to_dict(self) -> dict[str, Any]:
        """The row of the answer: its own columns, then ours; an own column with one of our names is kept as own_x."""
        ours = {
            "line": self.run.line,
            "source": self.run.source,
            "file": self.run.path,
            "predicted": self._predicted(),
            "measured": self._measured(),
            "skipped": self.skipped,
            "assumed": dict(self.question.assumed) if self.question else {},
            "unscored": dict(self.question.unscored) if self.question else {},
        }
        clash = {name for name in ours if name != "source" and name in self.run.columns}
        own = {f"own_{name}" if name in clash else name: cell for name, cell in self.run.columns.items()}
        return own | ours

    def _predicted(self) -> dict[str, float | None]:
        """Predicted figures; a figure is None when the row lacks what it depends on.

        low_gib and high_gib are the range of the figure that the row measured, of the device where it measured none.
        """
        empty: dict[str, float | None] = dict.fromkeys((*MEMORY_FIELDS, *SPEED_FIELDS))
        if self.estimate is None or self.question is None:
            return empty
        known = dict(empty)
        if "memory" not in self.question.unpredictable:
            memory = self.estimate.memory
            known |= {name: getattr(memory, name) for name in FIGURES}
            known["low_gib"], known["high_gib"] = memory_range(memory, self.question.measured.mem_kind)
        if "fit" not in self.question.unpredictable:
            known["fits_probability"] = self.estimate.fits_probability
        if "speed" not in self.question.unpredictable:
            known |= {name: getattr(self.estimate, name) for name in SPEED_FIELDS}
        return known

    def _measured(self) -> dict[str, Any]:
        if self.question is None:
            return {
                "peak_mem_gib": None,
                "mem_kind": self.run.columns.get("mem_kind", ""),
                "outcome": self.run.columns.get("outcome", ""),
                "tokens_per_s": None,
            }
        found = self.question.measured
        return {
            "peak_mem_gib": found.peak_mem_gib,
            "mem_kind": found.mem_kind,
            "outcome": found.outcome,
            "tokens_per_s": found.tokens_per_s,
        }


def predict(question: Settings | Skipped, estimate: Estimator) -> Row:
    """The row of one question; a question that the laws refuse is skipped with their reason."""
    if isinstance(question, Skipped):
        return Row(question.run, None, None, question.reason)
    try:
        return Row(question.run, question, estimate(question), None)
    except PerrunError as why:
        return Row(question.run, question, None, why.what)


def measured_memory(question: Settings) -> list[tuple[str, float]]:
    """(kind, GiB per GPU) of every memory figure of a run that went through and whose lengths are known."""
    measured = question.measured
    if "memory" in question.unscored or measured.outcome != "ok":
        return []
    figures = {measured.mem_kind: measured.peak_mem_gib}
    figures.setdefault("nvidia-smi", measured.nvidia_smi_gib)
    figures.setdefault("allocated", measured.allocated_gib)
    return [(kind, value) for kind, value in figures.items() if value is not None and kind in COMPARED]


def memory_range(memory: Memory, kind: str) -> tuple[float, float]:
    """90 % range of one kind of memory [GiB]; reserved has the device's range, relative to its own figure."""
    if COMPARED.get(kind) == "allocated_gib":
        return memory.allocated_low_gib, memory.allocated_high_gib
    share = getattr(memory, COMPARED.get(kind, "device_gib")) / memory.device_gib
    return memory.low_gib * share, memory.high_gib * share


def memory_points(row: Row) -> Iterator[Point]:
    """Measured memory of a row beside its prediction."""
    if row.question is None or row.estimate is None:
        return
    memory = row.estimate.memory
    for kind, value in measured_memory(row.question):
        low, high = memory_range(memory, kind)
        yield point(row.question, kind, getattr(memory, COMPARED[kind]), value, low, high)


def measured_speed(question: Settings) -> float | None:
    """Measured tokens/s of a run whose lengths are known."""
    return None if "speed" in question.unscored else question.measured.tokens_per_s


def speed_points(row: Row) -> Iterator[Point]:
    """Measured tokens/s of a row beside its prediction."""
    if row.question is None or row.estimate is None:
        return
    value, found = measured_speed(row.question), row.estimate
    if value is not None:
        low, high = found.tokens_per_s_low, found.tokens_per_s_high
        yield point(row.question, "tokens/s", found.tokens_per_s, value, low, high)


def outcome(row: Row) -> Iterator[tuple[float, str]]:
    """Predicted probability of fitting, and the outcome."""
    question, estimate = row.question, row.estimate
    if question is None or estimate is None or "fit" in question.unscored or not question.measured.outcome:
        return
    yield estimate.fits_probability, question.measured.outcome


def point(question: Settings, kind: str, predicted: float, measured: float, low: float, high: float) -> Point:
    """One scored figure with the groups that it counts in."""
    return Point(
        source=question.run.source,
        method=question.setting.method,
        gpu=question.gpu.id,
        framework=question.setting.framework,
        kind=kind,
        predicted=predicted,
        measured=measured,
        low=low,
        high=high,
    )
