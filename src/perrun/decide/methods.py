"""What full fine-tuning costs over LoRA and QLoRA: per hour of the cheapest hardware that holds it, and per run."""

from typing import Any

from perrun import matrix
from perrun.errors import InvalidInput
from perrun.terms import FitAnswer, FitCell, Job, MethodCost, MethodsAnswer, Model, Offer

BOUGHT = "on-demand"


def methods(job: Job, model: Model, offers: list[Offer], fixed: dict[str, Any]) -> MethodsAnswer:
    """Each method on the rig that holds it for the fewest dollars an hour, and on the one with the cheapest run.

    Every machine on offer is tried. Raises InvalidInput without an on-demand offer, and what `matrix.fit` raises.
    """
    rigs = list(dict.fromkeys(offer.rig for offer in offers if offer.term == BOUGHT))
    if not rigs:
        raise InvalidInput("no machine is sold on demand", hint="leave --provider out")
    found = matrix.fit(job, model, offers, rigs, fixed=fixed)
    rows: list[MethodCost] = []
    for method in found.methods:
        rows.append(_row(method, found, rows[0] if rows else None))
    return MethodsAnswer(job=job, rows=rows, verdict=_verdict(rows), prices_age=found.prices_age)


def _row(method: str, found: FitAnswer, first: MethodCost | None) -> MethodCost:
    cells = [cell for cell in found.cells if cell.method == method]
    held = [cell for cell in cells if cell.usd_per_hour is not None and cell.usd_per_run is not None]
    if not held:
        return MethodCost(
            method=method, rig_per_hour=None, usd_per_hour=None, ratio_per_hour=None,
            rig_per_run=None, usd_per_run=None, ratio_per_run=None, why_not=_nearest(cells),
        )  # fmt: skip
    by_hour = min(held, key=lambda cell: (cell.usd_per_hour, cell.usd_per_run))
    by_run = min(held, key=lambda cell: (cell.usd_per_run, cell.usd_per_hour))
    return MethodCost(
        method=method,
        rig_per_hour=by_hour.rig,
        usd_per_hour=by_hour.usd_per_hour,
        ratio_per_hour=_ratio(by_hour.usd_per_hour, first.usd_per_hour if first else by_hour.usd_per_hour),
        rig_per_run=by_run.rig,
        usd_per_run=by_run.usd_per_run,
        ratio_per_run=_ratio(by_run.usd_per_run, first.usd_per_run if first else by_run.usd_per_run),
    )


def _ratio(usd: float | None, first: float | None) -> float | None:
    return usd / first if usd is not None and first else None


def _nearest(cells: list[FitCell]) -> str | None:
    """Why the machine that is nearest to holding it does not."""
    close = [cell for cell in cells if cell.needs_gib and cell.has_gib]
    if not close:
        return cells[0].why_not if cells else None
    nearest = min(close, key=lambda cell: (cell.needs_gib or 0.0) / (cell.has_gib or 1.0))
    return f"no machine on offer holds it: {nearest.rig} {nearest.why_not}"


def _verdict(rows: list[MethodCost]) -> str:
    """One line: the last method that anything holds against the first."""
    held = [row for row in rows if row.ratio_per_hour is not None and row.ratio_per_run is not None]
    if len(held) < 2:
        return f"{held[0].method} is the only method that a machine on offer holds" if held else "nothing holds it"
    first, last = held[0], held[-1]
    return (
        f"{last.method} costs {last.ratio_per_hour:.1f}x {first.method} per hour of hardware "
        f"and {last.ratio_per_run:.1f}x per run"
    )
