"""Fits what the allocator's pools, the context and the communicator take, on runs whose kind of memory is known.

The closed form of allocated memory has no free constant; only the way from it to reserved and device memory has.
"""

import hashlib
from collections import Counter
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from perrun import estimator, memory
from perrun.calibration import optimize
from perrun.errors import InvalidInput, PerrunError
from perrun.physics import allocator
from perrun.runs import Settings
from perrun.terms import Calibration
from perrun.units import GIB

PARAMETERS = ("pool_layer", "pool_logits", "pool_steps", "pool_extra", "pool_slack", "context_gib", "communicator_gib")
START = (0.5, 0.7, 0.7, 1.0, 0.1, 0.6, 1.0)
LOWER = (0.0, 0.3, 0.0, 0.0, 0.0, 0.3, 0.0)
UPPER = (1.5, 1.5, 1.5, 4.0, 0.4, 0.9, 3.0)
LEAST = 0.01  # blocks are rounded to 512 bytes and 2 MiB: never less than this above the allocated peak
MINIMUM_RUNS = 30
KINDS = {"reserved": "reserved", "nvidia-smi": "device"}


@dataclass(frozen=True, slots=True)
class Row:
    """One measured run as the fit sees it [GiB]."""

    source: str
    kind: str
    measured: float
    allocated: float
    resident: float
    activations: float
    layer: float
    logits: float
    steps: float
    extra: bool
    several: bool
    usable: float


def rows(runs: list[Settings]) -> list[Row]:
    """Runs that ran and whose reserved or device memory is known; a second figure in the notes counts too."""
    found: list[Row] = []
    for run in runs:
        measured = run.measured
        kind = KINDS.get(measured.mem_kind)
        value = measured.peak_mem_gib if kind else measured.nvidia_smi_gib
        if value is None or measured.outcome != "ok" or "memory" in run.unscored:
            continue
        try:
            found.append(_row(run, kind or "device", value))
        except PerrunError:
            continue
    return found


def _row(run: Settings, kind: str, value: float) -> Row:
    peak = memory.peak(run.model.shape, run.setting, run.stack, run.stored_quantization)
    pools = {name: float(line) / GIB for name, line in peak.pools.items()}
    steps = pools["gradients"] + pools["optimizer temporary"]
    return Row(
        source=run.run.source,
        kind=kind,
        measured=value,
        allocated=float(peak.allocated) / GIB,
        resident=sum(line for name, line in pools.items() if name not in estimator.MOVING),
        activations=pools["saved activations"],
        layer=pools["layer backward"],
        logits=pools["logits and loss"],
        steps=steps,
        extra=run.stack.extra_pools,
        several=run.rig.n_gpus > 1,
        usable=estimator.usable_gib(run.gpu, run.rig),
    )


def _predict(values: npt.NDArray[np.float64], table: dict[str, Any]) -> npt.NDArray[np.float64]:
    fitted = allocator.Reuse(dict(zip(PARAMETERS, values, strict=True)) | {"pool_least": LEAST})
    plain, varied = (
        allocator.reserved_bytes(
            table["allocated"],
            table["resident"],
            table["activations"],
            table["layer"],
            table["logits"],
            table["steps"],
            extra,
            fitted,
        )
        for extra in (False, True)
    )
    reserved: Any = cast(Any, np).where(table["extra"], varied, plain) * GIB
    device = allocator.device_bytes(reserved, table["allocated"] * GIB, table["several"], table["usable"] * GIB, fitted)
    fixed = fitted.context + np.where(table["several"], fitted.communicator, 0.0)
    found: npt.NDArray[np.float64] = cast(Any, np).where(table["kind"] == "device", device, device - fixed) / GIB
    return found


def _table(found: list[Row]) -> dict[str, Any]:
    return {name: np.array([getattr(row, name) for row in found]) for name in Row.__slots__}


def residuals(values: npt.NDArray[np.float64], found: list[Row]) -> npt.NDArray[np.float64]:
    """Log ratio of predicted to measured memory, one per row."""
    return _log_ratios(values, _table(found))


def _log_ratios(values: npt.NDArray[np.float64], table: dict[str, Any]) -> npt.NDArray[np.float64]:
    return np.log(_predict(values, table) / table["measured"])


@dataclass(frozen=True, slots=True)
class Fit:
    """Fitted parameters with their standard errors, and what they leave over (log ratios, one per row)."""

    values: dict[str, float]
    errors: dict[str, float]
    residuals: npt.NDArray[np.float64]
    rows: list[Row]


def fit(runs: list[Settings]) -> Fit:
    """Robust least squares on log ratios, publications weighted by n^-1/4 so that none drowns the rest.

    Deterministic. Standard errors from the Jacobian at the solution. Raises InvalidInput below 30 usable runs.
    """
    return fit_rows(rows(runs))


def fit_rows(found: list[Row]) -> Fit:
    """As `fit`, on rows that are read already."""
    if len(found) < MINIMUM_RUNS:
        raise InvalidInput(
            f"{len(found)} runs with known reserved or device memory", expected=f"at least {MINIMUM_RUNS} for a fit"
        )
    count = Counter(row.source for row in found)
    weight = np.array([count[row.source] ** -0.25 for row in found])
    table = _table(found)

    def weighed(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        return _log_ratios(values, table) * weight

    solved: Any = optimize().least_squares(
        weighed,
        START,
        bounds=(LOWER, UPPER),
        loss="soft_l1",
        f_scale=0.05,
    )
    values = {name: round(float(v), 3) for name, v in zip(PARAMETERS, solved.x, strict=True)}
    left = _log_ratios(np.array(list(values.values())), table)
    spread: npt.NDArray[np.float64] = cast(Any, np.linalg).pinv(solved.jac.T @ solved.jac) * float(np.mean(left**2))
    errors = {name: round(float(e), 3) for name, e in zip(PARAMETERS, np.sqrt(np.abs(np.diag(spread))), strict=True)}
    return Fit(values, errors, left, found)


def left_out_residuals(found: list[Row]) -> npt.NDArray[np.float64]:
    """Log ratios of predicted to measured memory, each publication predicted by a fit on the others."""
    left: list[npt.NDArray[np.float64]] = []
    for source in sorted({row.source for row in found}):
        others = [row for row in found if row.source != source]
        if len(others) >= MINIMUM_RUNS:
            values = np.array(list(fit_rows(others).values.values()))
            left.append(residuals(values, [row for row in found if row.source == source]))
    return np.concatenate(left)


def allocated_residuals(runs: list[Settings]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Log ratio of predicted to measured allocated peaks of runs that report them, and the weight of each.

    A publication weighs the square root of its rows: most come from one, whose stacks the closed form knows best.
    """
    found = [
        (
            r.run.source,
            float(memory.peak(r.model.shape, r.setting, r.stack, r.stored_quantization).allocated),
            measured,
        )
        for r in runs
        if r.measured.mem_kind == "allocated"
        and r.measured.outcome == "ok"
        and "memory" not in r.unscored
        and (measured := r.measured.peak_mem_gib)
    ]
    count = Counter(source for source, _, _ in found)
    ratios = np.array([np.log(predicted / GIB / measured) for _, predicted, measured in found])
    return ratios, np.array([count[source] ** -0.5 for source, _, _ in found])


def spread_90(log_ratios: npt.NDArray[np.float64], weights: npt.NDArray[np.float64] | None = None) -> float:
    """Standard deviation of the normal distribution whose central 90 % holds as much (weight) of the residuals."""
    size = np.abs(log_ratios)
    weighed = np.ones_like(size) if weights is None else weights
    order = np.argsort(size)
    held = np.cumsum(weighed[order]) / weighed.sum()
    return round(float(size[order][np.searchsorted(held, 0.90)]) / estimator.RANGE_90, 3)


def fingerprint(runs: list[Settings]) -> str:
    """Hash of the rows that a fit saw: equal rows, equal hash, whatever their order."""
    lines = sorted("\x1f".join(r.run.columns.values()) for r in runs)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:12]


# What decides a fit is known worse than the allocated peaks of the stacks that report them: rows from stacks that
# nobody fitted anything to lie 5 to 20 % off. The probability that it fits uses at least this spread.
LEAST_FIT_SPREAD = 0.04
SOURCE = "perrun calibrate: allocated, reserved and device memory of measured runs"


def calibrate(runs: list[Settings]) -> list[Calibration]:
    """Parameters of the allocator and the spreads of memory, as rows of memory_calibration.csv. Raises as `fit`."""
    fitted = fit(runs)
    allocated, weights = allocated_residuals(runs)
    # half of those who ask run a stack that some publication measured, half one that none did
    both = np.concatenate([fitted.residuals, left_out_residuals(fitted.rows)])
    narrow = spread_90(allocated, weights)
    spreads = {
        "pool_least": LEAST,
        "device_spread": spread_90(both),
        "allocated_spread": narrow,
        "fit_spread": max(narrow, LEAST_FIT_SPREAD),
    }
    rows_ = [(name, value, fitted.errors[name], len(fitted.rows)) for name, value in fitted.values.items()]
    rows_ += [(name, value, 0.0, allocated.size) for name, value in spreads.items()]
    on = fingerprint(runs)
    return [
        Calibration(parameter=name, value=value, standard_error=error, n=n, fitted_on=on)
        for name, value, error, n in rows_
    ]
