"""The tables of the published pages once more, each cell by our own model: the same rows beside theirs."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from perrun import decide, estimator, matrix, rules
from perrun.decide import methods, usual
from perrun.decide.sides import laid_out, side
from perrun.decide.usual import MakeJob
from perrun.errors import MissingFact, PerrunError
from perrun.estimator import MIN_FIT
from perrun.facts import gpus, stacks
from perrun.rules import bytes_rule, flops
from perrun.rules.data import Table
from perrun.terms import Estimate, FitCell, Job, Model, Offer, Rig, Side, Strategy
from perrun.units import GB, GIB, MILLION, SECONDS_PER_HOUR

# The jobs of page 002, whose tokens it states; page 004 states none, so that its runs take those of the second.
SMALL = ("meta-llama/Llama-3.1-8B", {"method": "qlora", "examples": 5000, "tokens_per_example": 1500, "epochs": 3})
LARGE = ("meta-llama/Llama-3.1-70B", {"method": "qlora", "examples": 2000, "tokens_per_example": 2000, "epochs": 2})
PREDICTED = "predicted"


@dataclass(frozen=True, slots=True)
class Ours:
    """What our tables are made of: how a job is filled in, and the offers that price a card."""

    make: MakeJob
    offers: list[Offer]

    def card(self, name: str) -> str:
        """A card of a page as one of ours: where it leaves the form factor open, the one that is on offer."""
        usual_one = rules.card(name)
        sold = {offer.rig.gpu for offer in self.offers}
        if usual_one in sold:
            return usual_one
        return next((gpu.id for gpu in gpus.candidates(name) if gpu.id in sold), usual_one)


def table(name: str, which: str | None, make: MakeJob, offers: list[Offer]) -> Table:
    """A table of a rule set by our model. Raises UnknownName and InvalidInput as `rules.table`."""
    return TABLES[name, rules.named(name, which)](Ours(make, offers))


# ---- pages 000 and 001 ----


def _differs(ours: Ours) -> Table:
    a, b = (gpus.get(card) for card in usual.CARDS)
    rows = (
        ("memory", "GB", a.memory_gb, b.memory_gb),
        ("bandwidth", "TB/s", _over(a.bandwidth_gb_s, 1000), _over(b.bandwidth_gb_s, 1000)),
        ("BF16 tensor (dense)", "TFLOPS", a.bf16_dense_tflops, b.bf16_dense_tflops),
        ("FP8", "TFLOPS", a.fp8_dense_tflops, b.fp8_dense_tflops),
        ("NVLink", "GB/s", a.nvlink_gb_s, b.nvlink_gb_s),
        ("price", "USD/h", _price(a.id, ours), _price(b.id, ours)),
    )
    return [
        {"what": what, "unit": unit, "a100": _cell(x, "g"), "h100": _cell(y, "g"), "ratio": _cell(_ratio(y, x), ".2f")}
        for what, unit, x, y in rows
    ]


def _over(number: float | None, by: float) -> float | None:
    return None if number is None else number / by


def _ratio(number: float | None, by: float | None) -> float | None:
    return number / by if number is not None and by else None


def _cell(number: float | None, form: str) -> str:
    return "" if number is None or math.isnan(number) else f"{number:{form}}"


def _price(gpu: str, ours: Ours) -> float | None:
    """Dollars per GPU-hour: the median of what is on offer, or None."""
    try:
        return decide.market_price(gpu, ours.offers).usd
    except MissingFact:
        return None


def _jobs(ours: Ours) -> Table:
    found = usual.jobs(ours.make, {}, {}, usual.CARDS, decide.Market(ours.offers))
    table: Table = []
    for row in found.jobs:
        one = row.compared
        if one is None:
            continue
        low, high = sorted((one.usd_a, one.usd_b))
        table.append(
            {
                "job": row.what,
                "method": one.job.method,
                "n_gpus": one.a.rig.n_gpus,
                "gpu_a": one.a.rig.gpu,
                "gpu_b": one.b.rig.gpu,
                "price_a_usd_per_gpu_hour": f"{one.a.usd_per_gpu_hour:.3f}",
                "price_b_usd_per_gpu_hour": f"{one.b.usd_per_gpu_hour:.3f}",
                "hours_on_a": f"{one.a.hours:.2f}",
                "speedup_b_over_a": f"{one.speedup:.2f}",
                "cost_a_usd": f"{one.usd_a:.2f}",
                "cost_b_usd": f"{one.usd_b:.2f}",
                "cheaper": "a" if one.usd_a < one.usd_b else "b",
                "saving_percent": f"{(1 - low / high) * 100:.0f}",
                "hours_are": PREDICTED,
            }
        )
    return table


def _decisions(ours: Ours) -> Table:
    found = usual.decisions(ours.make, {}, {}, list(usual.CANDIDATES), decide.Market(ours.offers))
    return [{"what_you_do": row.what, "rent": row.rent, "why": row.why} for row in found.decisions]


# ---- page 002 ----


def _memory(ours: Ours) -> Table:
    """The page's setting (rank 16, 2,048 tokens, micro batch 1, checkpointing): device memory, and where it fits."""
    table: Table = []
    for row in rules.data("memory"):
        given = {"method": row["method"], "lora_rank": 16, "seq_len": 2048, "tokens_per_example": 2048}
        job, model = ours.make(row["model"], {**given, "global_batch": 1})
        found = [_stepped(job, model, ours.card(card)) for card in flops.OF_MEMORY]
        marks = {card: _mark(one.fits_probability) for card, one in zip(flops.OF_MEMORY, found, strict=True)}
        needs = found[-1].memory.device_gib * GIB / GB
        table.append({"model": row["model"], "method": row["method"], "memory_gb": f"{needs:.1f}", **marks})
    return table


def _stepped(job: Job, model: Model, card: str) -> Estimate:
    """One micro batch of one row with full checkpointing on a card."""
    stack = stacks.get("trl")
    layout = Strategy(checkpointing="full", attention=cast(Any, stack.attention), framework=stack.framework)
    return estimator.answer(estimator.ask(job, layout, Rig(gpu=card), model))


def _mark(fits: float) -> str:
    return "fits" if fits >= MIN_FIT else "may fit" if fits >= 1 - MIN_FIT else "no"


def _ran(ours: Ours, run: tuple[str, dict[str, Any]], card: str) -> Side | None:
    """A run of the page on one card at what is on offer; None where it does not fit. Without a price it costs nan."""
    job, model = ours.make(*run)
    rig = Rig(gpu=ours.card(card))
    usd = _price(rig.gpu, ours)
    price = decide.Price(math.nan if usd is None else usd, "on offer")
    try:
        return side(laid_out(decide.Choice(job, model, rig, price)), card)
    except PerrunError:
        return None


def _speed(ours: Ours) -> Table:
    speeds = {card: found.tokens_per_s for card in flops.OF_SPEED if (found := _ran(ours, SMALL, card))}
    peaks = {card: gpus.get(ours.card(card)).bf16_dense_tflops for card in flops.OF_SPEED}
    first = speeds.get(flops.OF_SPEED[0])
    return [
        {
            "gpu": card,
            "dense_bf16_tflops": _cell(peaks[card], "g"),
            "tokens_per_s": _cell(speeds.get(card), ".0f"),
            "relative": _cell(_ratio(speeds.get(card), first), ".2f"),
        }
        for card in flops.OF_SPEED
    ]


def _prices(ours: Ours) -> Table:
    return [
        {
            "gpu": row["gpu"],
            "memory_gb": row["memory_gb"],
            "price_usd_per_gpu_hour": row["price_usd_per_gpu_hour"],
            "usd_per_million_tokens": row["usd_per_million_tokens_8b_qlora"],
        }
        for row in _cards(ours)
    ]


def _cards(ours: Ours) -> Table:
    table: Table = []
    for row in rules.data("cards"):
        small, large = _ran(ours, SMALL, row["gpu"]), _ran(ours, LARGE, row["gpu"])
        gpu = gpus.get(ours.card(row["gpu"]))
        per_token = small.usd_per_gpu_hour / small.tokens_per_s / SECONDS_PER_HOUR * MILLION if small else None
        table.append(
            {
                "gpu": row["gpu"],
                "memory_gb": f"{gpu.memory_gb:g}",
                "dense_bf16_tflops": _cell(gpu.bf16_dense_tflops, "g"),
                "price_usd_per_gpu_hour": _cell(_price(gpu.id, ours), ".2f"),
                "tokens_per_s_8b_qlora": _cell(small.tokens_per_s if small else None, ".0f"),
                "usd_per_million_tokens_8b_qlora": _cell(per_token, ".3f"),
                "hours_22_5m_tokens": _cell(small.hours if small else None, ".2f"),
                "cost_22_5m_tokens_usd": _cell(small.usd if small else None, ".2f"),
                "hours_70b_8m_tokens": _cell(large.hours if large else None, ".2f"),
                "cost_70b_8m_tokens_usd": _cell(large.usd if large else None, ".2f"),
            }
        )
    return table


def _run(run: tuple[str, dict[str, Any]], cards: tuple[str, ...]) -> Callable[[Ours], Table]:
    """Hours and dollars of a run by card, cheapest first."""

    def made(ours: Ours) -> Table:
        found = [(card, _ran(ours, run, card)) for card in cards]
        found.sort(key=lambda pair: (math.inf if pair[1] is None or math.isnan(pair[1].usd) else pair[1].usd, pair[0]))
        return [
            {
                "gpu": card,
                "hours": _cell(one.hours if one else None, ".2f"),
                "cost_usd": _cell(one.usd if one else None, ".2f"),
                "hours_are": PREDICTED if one else "does not fit",
            }
            for card, one in found
        ]

    return made


# ---- page 004 ----


def _cells(ours: Ours) -> list[FitCell]:
    job, model = ours.make(*LARGE)
    rigs = [Rig(gpu=ours.card(row["gpu"]), n_gpus=int(row["n_gpus"])) for row in rules.data("rigs")]
    return matrix.fit(job, model, ours.offers, rigs).cells


def _fit(ours: Ours) -> Table:
    cells = _cells(ours)
    by = {(cell.rig, cell.method): cell for cell in cells}
    table: Table = []
    for rig in dict.fromkeys(cell.rig for cell in cells):
        found = {key: by[rig, name] for key, name in zip(bytes_rule.JUDGED_BY, matrix.METHODS, strict=True)}
        total = rig.n_gpus * gpus.get(rig.gpu).memory_gb
        table.append(
            {
                "rig": str(rig),
                "n_gpus": rig.n_gpus,
                "gpu": rig.gpu,
                "total_memory_gb": f"{total:g}",
                "price_usd_per_hour": _cell(found["qlora"].usd_per_hour, ".2f"),
                **{key: cell.mark for key, cell in found.items()},
            }
        )
    return table


def _rigs(ours: Ours) -> Table:
    """By method the two rigs that hold it for the fewest dollars an hour, and the rigs that do not."""
    table: Table = []
    every = _cells(ours)
    for method in matrix.METHODS:
        cells = [cell for cell in every if cell.method == method]
        held = [cell for cell in cells if cell.mark == "yes" and cell.usd_per_hour]
        held.sort(key=lambda cell: cell.usd_per_hour or math.inf)
        table.append(
            {
                "method": method,
                "rigs": " or ".join(f"{cell.rig} (${cell.usd_per_hour:.2f}/h)" for cell in held[:2]),
                "too_small": ", ".join(str(cell.rig) for cell in cells if cell.mark != "yes"),
            }
        )
    return table


def _runs(ours: Ours) -> Table:
    """The page's rigs and methods, with the hours that 8M tokens take there."""
    names = ("qlora", "lora", "full-adam8bit", "full-adamw")
    changes: dict[str, dict[str, Any]] = dict(zip(names, matrix.METHODS.values(), strict=True))
    table: Table = []
    for row in rules.data("assumed"):
        rig = Rig(gpu=ours.card(row["gpu"]), n_gpus=int(row["n_gpus"]))
        job, model = ours.make(LARGE[0], {**LARGE[1], **changes[row["method"]]})
        usd = _price(rig.gpu, ours)
        price = decide.Price(math.nan if usd is None else usd, "on offer")
        line: dict[str, Any] = {"method": row["method"], "n_gpus": rig.n_gpus, "gpu": row["gpu"]}
        line["price_usd_per_gpu_hour"] = _cell(usd, ".2f")
        try:
            found = side(laid_out(decide.Choice(job, model, rig, price)), row["method"])
        except PerrunError as why:
            table.append({**line, "hours": "", "gpu_hours": "", "cost_usd": "", "hours_are": why.what})
            continue
        figures = {"hours": found.hours, "gpu_hours": found.hours * rig.n_gpus, "cost_usd": found.usd}
        shown = {name: _cell(number, ".2f") for name, number in figures.items()}
        table.append({**line, **shown, "hours_are": f"{PREDICTED} for {job.tokens / MILLION:.0f}M tokens"})
    return table


def _methods(ours: Ours) -> Table:
    job, model = ours.make(*LARGE)
    found = methods.methods(job, model, ours.offers, {})
    return [
        {
            "method": row.method,
            "rig": str(row.rig_per_hour or ""),
            "usd_per_hour": _cell(row.usd_per_hour, ".2f"),
            "ratio_per_hour": _cell(row.ratio_per_hour, ".1f"),
            "rig_per_run": str(row.rig_per_run or ""),
            "usd_per_run": _cell(row.usd_per_run, ".2f"),
            "ratio_per_run": _cell(row.ratio_per_run, ".1f"),
            "hours_are": f"{PREDICTED} for {job.tokens / MILLION:.0f}M tokens",
        }
        for row in found.rows
    ]


def _planning(ours: Ours) -> Table:
    """GB over all GPUs of the page's smallest rig for a method, beside the bytes a parameter that this makes."""
    table: Table = []
    for cell in _smallest(ours):
        total = (cell.needs_gib or math.nan) * cell.rig.n_gpus * GIB / GB
        billions = ours.make(*LARGE)[1].total_params / 1e9
        table.append(
            {
                "method": cell.method,
                "rig": str(cell.rig),
                "gb_of_one_gpu": _cell((cell.needs_gib or math.nan) * GIB / GB, ".1f"),
                "gb_of_all": _cell(total, ".1f"),
                "bytes_per_param": _cell(total / billions, ".2f"),
            }
        )
    return table


def _smallest(ours: Ours) -> list[FitCell]:
    """For each method the rig of the page with the least memory that holds it."""
    cells = [cell for cell in _cells(ours) if cell.mark == "yes"]
    size = {cell.rig: cell.rig.n_gpus * gpus.get(cell.rig.gpu).memory_gb for cell in cells}
    found = {m: [cell for cell in cells if cell.method == m] for m in matrix.METHODS}
    return [min(held, key=lambda cell: size[cell.rig]) for held in found.values() if held]


TABLES: dict[tuple[str, str], Callable[[Ours], Table]] = {
    ("measured-speedup", "jobs"): _jobs,
    ("measured-speedup", "decisions"): _decisions,
    ("measured-speedup", "differs"): _differs,
    ("flops-6n-0.3", "cards"): _cards,
    ("flops-6n-0.3", "memory"): _memory,
    ("flops-6n-0.3", "speed"): _speed,
    ("flops-6n-0.3", "prices"): _prices,
    ("flops-6n-0.3", "run-8b"): _run(SMALL, flops.OF_SMALL_RUN),
    ("flops-6n-0.3", "run-70b"): _run(LARGE, flops.OF_LARGE_RUN),
    ("bytes-per-parameter", "rules"): _planning,
    ("bytes-per-parameter", "rigs"): _rigs,
    ("bytes-per-parameter", "fit"): _fit,
    ("bytes-per-parameter", "runs"): _runs,
    ("bytes-per-parameter", "methods"): _methods,
}
