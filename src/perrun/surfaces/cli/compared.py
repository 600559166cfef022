"""What `perrun compare` prints for two sides: a table, the bill where offers are named, the verdict, what flips it."""

from typing import Any

from perrun.planner.words import short
from perrun.surfaces.cli import show

# The columns of --csv, unrounded: of a side, of a comparison, of a method. A side is a row.
SIDE = (
    "name",
    "rig.gpu",
    "rig.n_gpus",
    "rig.n_nodes",
    "precision",
    "usd_per_gpu_hour",
    "price_of",
    "hours",
    "hours_of",
    "usd",
    "tokens_per_s",
    "needs_gib",
    "bound_by",
)
COMPARED = (
    "speedup",
    "speedup_low",
    "speedup_high",
    "price_ratio",
    "break_even_speedup",
    "usd_a",
    "usd_b",
    "probability_b_cheaper",
    "flip_price_b",
    "hours_saved",
    "hour_worth",
    "verdict",
)
METHOD = ("method", "usd_per_hour", "ratio_per_hour", "usd_per_run", "ratio_per_run", "why_not")
SHOWN_GIB = 0.005  # of one GPU, below which a line of memory is not listed
SHOWN_PART = 0.002  # of the hours on A, below which a part of the step is not listed
JOBS = ("job", "setup", "rigs", "hours on A", "speed-up (range)", "$ on A", "$ on B", "cheaper", "B cheaper with")
DECISIONS = ("what you do", "rent", "why")
METHODS = (
    "method",
    "cheapest by the hour",
    "$/h",
    "over the first",
    "cheapest run",
    "$ per run",
    "over the first, per run",
)


def tell(found: Any, output: dict[str, Any], explained: bool) -> None:
    """Prints a comparison in the form that was asked for."""
    if output["json"]:
        show.as_json(found)
        return
    if output["csv"]:
        _figures(found)
        return
    sides = [found.a, found.b, *([found.fp8.b] if found.fp8 else [])]
    columns = ["", "A", "B", "B with FP8"][: len(sides) + 1]
    if not show.rows(columns, _table(found, sides), output):
        return
    print(f"{found.verdict}.")
    print(_rule(found))
    print(f"{found.flips}.")
    if found.fp8 is not None:
        print(f"With FP8: {found.fp8.verdict}.")
    elif found.fp8_note:
        print(f"FP8: {found.fp8_note}.")
    if found.prices_age:
        print(found.prices_age)
    if len(found.difference) > 1:
        print()
        show.rows(("bill", "A", "B", "B - A"), _bill(found), output)
    if explained:
        print()
        show.rows(("hours of the training", "A", "B", "speed-up"), _parts(found), output)
        print()
        show.rows(("GiB of one GPU", "A", "B", "B - A"), _memory(found), output)


def _figures(found: Any) -> None:
    """A row for each side, with how it compares to A."""
    rows = [[*show.values(SIDE, found.a), *[""] * len(COMPARED)]]
    rows += [[*show.values(SIDE, one.b), *show.values(COMPARED, one)] for one in (found, found.fp8) if one is not None]
    print(show.as_csv([*show.heads(SIDE), *COMPARED], rows), end="")


def _rule(found: Any) -> str:
    name, even = found.b.name, found.break_even_speedup
    if even is None:
        return f"No speed-up makes {name} the cheaper: what it bills beside the training is more than all of A's bill."
    low, high = found.flip_price_b_low, found.flip_price_b_high
    return (
        f"Take {name} only if it is {even:.2f}x as fast or more; the verdict flips at ${found.flip_price_b:.2f} "
        f"per GPU-hour of it ({low:.2f}-{high:.2f})."
    )


def _table(found: Any, sides: list[Any]) -> list[list[str]]:
    shared = [found, *([found.fp8] if found.fp8 else [])]
    return [
        ["rig", *(str(s.rig) for s in sides)],
        ["precision", *(s.precision for s in sides)],
        *([["settings", "as given", *[_changes(found)] * (len(sides) - 1)]] if found.changes else []),
        ["$ per GPU-hour", *(f"{s.usd_per_gpu_hour:.3f} ({s.price_of})" for s in sides)],
        ["tokens/s", *(f"{s.tokens_per_s:,.0f}" for s in sides)],
        ["speed-up (80 % range)", "1.00", *(_range(one) for one in shared)],
        ["hours", *(f"{short(s.hours)}{_typed(s)}" for s in sides)],
        ["$ per run", *(f"{short(s.usd)}{_typed(s)}" for s in sides)],
        ["cheaper than A", "", *(_chance(one.probability_b_cheaper) for one in shared)],
        ["bound by", *(s.bound_by for s in sides)],
        ["GiB of one GPU", *(f"{s.needs_gib:.1f}" for s in sides)],
        ["laid out as", *(_layout(s.strategy) for s in sides)],
    ]


def _range(one: Any) -> str:
    return f"{one.speedup:.2f} ({one.speedup_low:.2f}-{one.speedup_high:.2f})"


def _chance(probability: float) -> str:
    """A probability that never says 0 or 100 %: the range is an estimate itself."""
    return "under 1%" if probability < 0.01 else "over 99%" if probability > 0.99 else f"{probability:.0%}"


def _typed(side: Any) -> str:
    """Hours that were not predicted say so in their own line, and so does what they cost."""
    return "" if side.hours_of == "predicted" else f" ({side.hours_of})"


def _changes(found: Any) -> str:
    return ", ".join(f"{name} {'as is fastest' if value is None else value}" for name, value in found.changes.items())


def _layout(strategy: Any) -> str:
    loss = "fused" if strategy.fused_ce else "plain"
    return (
        f"{strategy.micro_batch}x{strategy.grad_accum}, checkpointing {strategy.checkpointing}, "
        f"{loss} loss, {strategy.sharding}"
    )


def _bill(found: Any) -> list[list[str]]:
    """Line by line: a difference of bills is a bill."""
    bills = [{line.name: line.usd for line in side.cost_lines} for side in (found.a, found.b)]
    lines = [
        [line.name, *(f"{bill.get(line.name, 0.0):,.2f}" for bill in bills), f"{line.usd:+,.2f}"]
        for line in found.difference
    ]
    return [*lines, ["total", f"{found.usd_a:,.2f}", f"{found.usd_b:,.2f}", f"{found.usd_b - found.usd_a:+,.2f}"]]


def _parts(found: Any) -> list[list[str]]:
    """Which part of a step gains how much: why the speed-up is what it is."""
    a, b = found.a.time_lines, found.b.time_lines
    order = sorted(dict.fromkeys((*a, *b)), key=lambda part: -a.get(part, 0.0))
    least = SHOWN_PART * found.a.hours
    kept = [
        (part, a.get(part, 0.0), b.get(part, 0.0)) for part in order if max(a.get(part, 0), b.get(part, 0)) >= least
    ]
    rows = [[part, f"{of_a:.3g}", f"{of_b:.3g}", _gain(of_a, of_b)] for part, of_a, of_b in kept]
    return [*rows, ["all", f"{found.a.hours:.3g}", f"{found.b.hours:.3g}", f"{found.speedup:.2f}"]]


def _memory(found: Any) -> list[list[str]]:
    """Line by line what the memory of one GPU is of, and what the difference is of."""
    a, b = found.a.memory_lines, found.b.memory_lines
    pairs = [(line, a.get(line, 0.0), b.get(line, 0.0)) for line in dict.fromkeys((*a, *b))]
    pairs.sort(key=lambda pair: -max(pair[1:]))
    rows = [[line, f"{x:.2f}", f"{y:.2f}", f"{y - x:+.2f}"] for line, x, y in pairs if max(x, y) >= SHOWN_GIB]
    total_a, total_b = found.a.needs_gib, found.b.needs_gib
    return [*rows, ["all", f"{total_a:.2f}", f"{total_b:.2f}", f"{total_b - total_a:+.2f}"]]


def _gain(a: float, b: float) -> str:
    return f"{a / b:.2f}" if a and b else ""


def tell_jobs(found: Any, output: dict[str, Any]) -> None:
    """The five jobs, and for people what to rent for which kind of job."""
    if output["json"]:
        show.as_json(found)
        return
    if output["csv"]:
        _figures_of_jobs(found)
        return
    first = next((row.compared for row in found.jobs if row.compared), None)
    title = f"A: {_priced(first.a)}, B: {_priced(first.b)}" if first else ""
    if show.rows(JOBS, [_job(row) for row in found.jobs], output, title):
        print()
        tell_decisions(found, output)


def _figures_of_jobs(found: Any) -> None:
    """A row for each job: both sides and how they compare."""
    both = [f"{name}_{side}" for side in ("a", "b") for name in show.heads(SIDE)]
    rows: list[list[Any]] = []
    for row in found.jobs:
        one = row.compared
        cells = [*show.values(SIDE, one.a), *show.values(SIDE, one.b), *show.values(COMPARED, one)] if one else []
        rows.append([row.what, row.setup, row.why_not, *(cells or [""] * (len(both) + len(COMPARED)))])
    print(show.as_csv(["what", "setup", "why_not", *both, *COMPARED], rows), end="")


def _priced(side: Any) -> str:
    return f"{side.rig.gpu} ${side.usd_per_gpu_hour:.3f} ({side.price_of})"


def _job(row: Any) -> list[str]:
    one = row.compared
    if one is None:
        return [row.what, row.setup, row.why_not, *[""] * (len(JOBS) - 3)]
    wins, share = ("B", 1 - one.usd_b / one.usd_a) if one.usd_b < one.usd_a else ("A", 1 - one.usd_a / one.usd_b)
    return [
        row.what,
        row.setup,
        f"{one.a.rig.n_gpus}x",
        f"{one.a.hours:.2f}{_typed(one.a)}",
        _range(one),
        f"{one.usd_a:,.2f}",
        f"{one.usd_b:,.2f}",
        f"{wins} ({share:.0%} less)",
        _chance(one.probability_b_cheaper),
    ]


def tell_decisions(found: Any, output: dict[str, Any]) -> None:
    """What to rent for which kind of job, and what all rows rest on."""
    if output["json"]:
        show.as_json(found)
        return
    if show.rows(DECISIONS, [[row.what, row.rent or "none", row.why] for row in found.decisions], output):
        _rests_on(found)


def _rests_on(found: Any) -> None:
    print("\nRests on:")
    for line in (*found.assumptions, found.prices_age):
        if line:
            print(f"  {line}")


def tell_methods(found: Any, output: dict[str, Any]) -> None:
    """Methods of one model over the first."""
    if output["json"]:
        show.as_json(found)
        return
    if output["csv"]:
        heads = ["rig_per_hour", "rig_per_run", *METHOD]
        rows = [[row.rig_per_hour, row.rig_per_run, *show.values(METHOD, row)] for row in found.rows]
        print(show.as_csv(heads, rows), end="")
        return
    if show.rows(METHODS, [_method(row) for row in found.rows], output, found.job.model):
        print(f"{found.verdict}.")
        print("Hours are predicted; the hour is that of the whole machine, which is billed whole.")
        if found.prices_age:
            print(found.prices_age)


def _method(row: Any) -> list[str]:
    if row.rig_per_hour is None:
        return [row.method, row.why_not or "", *[""] * (len(METHODS) - 2)]
    return [
        row.method,
        str(row.rig_per_hour),
        f"{row.usd_per_hour:.2f}",
        f"{row.ratio_per_hour:.1f}x",
        str(row.rig_per_run),
        f"{row.usd_per_run:,.2f}",
        f"{row.ratio_per_run:.1f}x",
    ]
