"""Fitting the law of speed to measured runs: a dozen constants, their errors, and the range that residuals give.

The fit is robust (soft L1 on log ratios), pulls every constant towards what is known of it without any training run,
and weighs publications so that the rows of a big one don't drown the rest. Ranges are conformal: quantiles of the
residuals of runs whose whole publication was left out of the fit. Everything is deterministic.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from perrun import speed
from perrun.calibration import optimize
from perrun.errors import InvalidInput, PerrunError
from perrun.runs import Settings, Skipped, settings
from perrun.speed.step import Question, domain, lines, question
from perrun.speed.work import Work, work
from perrun.terms import Calibration, Run

Array = npt.NDArray[np.float64]

MINIMUM_RUNS = 60
SCALE = 0.1  # log ratio beyond which a residual counts linearly instead of squared
SHRINK = 200.0  # rows of all groups that stand beside a group's own in its range: groups are mostly one publication
RANGE = (0.10, 0.90)


@dataclass(frozen=True, slots=True)
class Prior:
    """What is known of a constant before any training run: centre, standard deviation of its logarithm, from where."""

    centre: float
    spread: float
    source: str


# Bounds are three spreads to each side.
PRIORS: dict[str, Prior] = {
    "product": Prior(
        0.95, 0.10, "products of training are not all of the best shape that the measured rate was found at"
    ),
    "attention": Prior(1.0, 0.20, "kernels' published shares (physics/roofline.py)"),
    "eager": Prior(1.0, 0.30, "bytes counted by hand"),
    "fused": Prior(1.0, 0.30, "bytes counted by hand"),
    "launch": Prior(12e-6, 0.20, "5 to 20 us from Python with autograd; pytorch profiler traces"),
    "hook": Prior(4e-4, 0.15, "fetch and release of a module in DeepSpeed's profiles"),
    "nf4": Prior(4.0, 0.10, "bitsandbytes' kernel against a copy"),
    "gptq": Prior(8.0, 0.20, "AutoGPTQ's unpacking kernels against a copy"),
    "overlap": Prior(0.7, 0.30, "prefetch hides all but the first and last layer and what shares the memory"),
    "power": Prior(0.5, 0.20, "clock goes with the square root of power near the limit"),
    "grouped": Prior(0.6, 0.30, "grouped products against one product of their size"),
    "fill": Prior(150.0, 0.50, "two to four tiles of 64 along the inner dimension"),
}
NAMES = tuple(PRIORS)


@dataclass(frozen=True, slots=True)
class Data:
    """Usable runs as arrays: work, question, tokens per step, measured tokens/s, publication, group."""

    questions: tuple[Settings, ...]
    work: Work
    card: Question
    tokens: Array
    measured: Array
    source: tuple[str, ...]
    group: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.questions)


@dataclass(frozen=True, slots=True)
class Fit:
    """A calibration with what it was fitted on. left_out: log ratio predicted over measured of every run by the fit
    without its publication."""

    calibration: speed.Calibration
    errors: dict[str, float]
    counts: dict[str, int]
    fitted_on: str
    data: Data
    left_out: Array

    def rows(self) -> list[Calibration]:
        """Rows of calibration.csv."""
        law = self.calibration.law
        n = len(self.data)
        found = [
            Calibration(
                parameter=name,
                value=getattr(law, name),
                standard_error=self.errors[name],
                n=n,
                fitted_on=self.fitted_on,
            )
            for name in NAMES
        ]
        for name, (low, high) in sorted(self.calibration.ranges.items()):
            for side, value in (("low", low), ("high", high)):
                found.append(
                    Calibration(
                        parameter=f"{side}/{name}",
                        value=value,
                        standard_error=0.0,
                        n=self.counts[name],
                        fitted_on=self.fitted_on,
                    )
                )
        return found


def usable(found: Settings | Skipped) -> bool:
    """Whether a run can be fitted: measured, scored, and on a card whose power is known."""
    if isinstance(found, Skipped) or "speed" in found.unscored or "speed" in found.unpredictable:
        return False
    limited = found.variant.power_limited and found.rig.power_limit_w is None
    return found.measured.tokens_per_s is not None and found.measured.outcome == "ok" and not limited


def _stack(kind: type[Any], rows: Sequence[Any]) -> Any:
    return kind(**{f.name: np.array([float(getattr(row, f.name)) for row in rows]) for f in fields(kind)})


def collect(runs: Iterable[Run | Settings | Skipped]) -> Data:
    """The usable runs as arrays; those whose card lacks a figure are left out."""
    kept: list[tuple[Settings, Work, Question]] = []
    for run in runs:
        found = settings(run) if isinstance(run, Run) else run
        if isinstance(found, Skipped) or not usable(found):
            continue
        try:
            card = speed.card(found.gpu, found.rig)
            asked = question(found.setting, card, found.stack)
        except PerrunError:
            continue
        todo = work(
            found.model.shape, found.setting, found.stack, found.stored_quantization, domain(found.setting, card)
        )
        kept.append((found, todo, asked))
    return Data(
        questions=tuple(found for found, _, _ in kept),
        work=_stack(Work, [todo for _, todo, _ in kept]),
        card=_stack(Question, [asked for _, _, asked in kept]),
        tokens=np.array([float(speed.processed_tokens_per_s(found.setting, 1.0)) for found, _, _ in kept]),
        measured=np.array([found.measured.tokens_per_s for found, _, _ in kept], dtype=float),
        source=tuple(found.run.source for found, _, _ in kept),
        group=tuple(speed.group(found.setting, found.stack) for found, _, _ in kept),
    )


def take(data: Data, rows: npt.NDArray[np.intp]) -> Data:
    """The rows of `data`."""
    pick = {f.name: getattr(data, f.name) for f in fields(Data)}
    for name in ("questions", "source", "group"):
        pick[name] = tuple(pick[name][int(i)] for i in rows)
    for name in ("tokens", "measured"):
        pick[name] = pick[name][rows]
    pick["work"] = Work(**{f.name: getattr(data.work, f.name)[rows] for f in fields(Work)})
    pick["card"] = Question(**{f.name: getattr(data.card, f.name)[rows] for f in fields(Question)})
    return Data(**pick)


def residuals(data: Data, law: speed.Law) -> Array:
    """Log of predicted over measured tokens/s."""
    step: Any = sum(lines(data.work, data.card, law).values())
    return np.log(data.tokens / step / data.measured)


def _law(x: Array) -> speed.Law:
    return speed.Law(**dict(zip(NAMES, np.exp(x).tolist(), strict=True)))


def solve(data: Data) -> tuple[speed.Law, dict[str, float]]:
    """The law and the standard errors of its constants."""
    counts = Counter(data.source)
    weight = np.array([counts[source] ** -0.25 for source in data.source])  # a publication counts as sqrt(n) rows
    centre = np.log([PRIORS[name].centre for name in NAMES])
    spread = np.array([PRIORS[name].spread for name in NAMES])

    def cost(x: Array) -> Array:
        e = residuals(data, _law(x)) / SCALE
        robust = np.sign(e) * np.sqrt(2.0 * (np.sqrt(1.0 + e * e) - 1.0))
        return np.concatenate([weight * robust, (x - centre) / spread])

    found = optimize().least_squares(cost, centre, bounds=(centre - 3 * spread, centre + 3 * spread), xtol=1e-10)
    jacobian = np.asarray(found.jac, dtype=float)
    covariance: Array = np.linalg.inv(jacobian.T @ jacobian)
    errors = np.exp(found.x) * np.sqrt(covariance.diagonal())
    return _law(found.x), dict(zip(NAMES, errors.tolist(), strict=True))


def left_out(data: Data) -> Array:
    """Residuals of every run by the fit without its publication."""
    found = np.empty(len(data))
    for source in sorted(set(data.source)):
        out = np.array([other == source for other in data.source])
        law, _ = solve(take(data, np.flatnonzero(~out)))
        found[out] = residuals(take(data, np.flatnonzero(out)), law)
    return found


def ranges(groups: Sequence[str], residual: Array) -> dict[str, tuple[float, float]]:
    """By group the factors on tokens/s between which 80 % of runs lie, small groups drawn towards all runs."""
    whole = np.quantile(residual, RANGE)
    found = {speed.EVERYWHERE: (float(np.exp(-whole[1])), float(np.exp(-whole[0])))}
    for name in sorted(set(groups)):
        own = residual[np.array([other == name for other in groups])]
        share = len(own) / (len(own) + SHRINK)
        both = share * np.quantile(own, RANGE) + (1.0 - share) * whole
        found[name] = float(np.exp(-both[1])), float(np.exp(-both[0]))
    return found


def fingerprint(data: Data) -> str:
    """Hash of the runs that were fitted: every column of each, whatever their order."""
    rows = sorted(json.dumps(asked.run.columns, sort_keys=True) for asked in data.questions)
    return hashlib.sha256("\n".join(rows).encode()).hexdigest()[:16]


def fit(runs: Iterable[Run | Settings | Skipped]) -> Fit:
    """The law fitted to runs. Raises InvalidInput when fewer than MINIMUM_RUNS of them can be used."""
    data = collect(runs)
    if len(data) < MINIMUM_RUNS:
        raise InvalidInput(
            f"{len(data)} usable runs are too few for a fit",
            expected=f"at least {MINIMUM_RUNS} with tokens per second, sequence length, batch and GPU",
        )
    law, errors = solve(data)
    out = left_out(data)
    counts = dict(Counter(data.group)) | {speed.EVERYWHERE: len(data)}
    calibration = speed.Calibration(law, ranges(data.group, out))
    return Fit(calibration, errors, counts, fingerprint(data), data, out)


def source(parameter: str) -> str:
    """Where a row of calibration.csv comes from."""
    if parameter in PRIORS:
        return f"perrun calibrate; prior: {PRIORS[parameter].source}"
    return "perrun calibrate: quantiles of residuals with the publication left out"
