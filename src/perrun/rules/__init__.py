"""Published rule sets beside our own model, so that a reader can see how others count."""

import csv
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from perrun.errors import InvalidInput, UnknownName
from perrun.rules import laws

Table = list[dict[str, Any]]


@cache
def data(name: str) -> tuple[dict[str, str], ...]:
    """Rows of rules/<name>.csv, figures as the pages print them."""
    text = resources.files("perrun.rules").joinpath(f"{name}.csv").read_text(encoding="utf-8")
    return tuple(csv.DictReader(text.splitlines()))


@dataclass(frozen=True, slots=True)
class RuleSet:
    """One published way to count: where it stands, what it says, the tables that it prints."""

    name: str
    says: str
    source: str
    tables: dict[str, Callable[[], Table]]


# What seed page 002 calculates with: 8.03B and 70.6B parameters, 22.5M and 8M tokens.
SMALL, LARGE = 8.03e9, 70.6e9
SMALL_TOKENS, LARGE_TOKENS = 22.5e6, 8e6
# Cards whose memory holds the page's 44.3 GB for a 70B QLoRA run, and that it lists there.
LARGE_CARDS = ("L40S-48GB", "A100-80GB", "H100-80GB", "H200-141GB")


def cards() -> Table:
    """Tokens per second, dollars per million tokens, hours and cost of the page's two runs, by card."""
    table: Table = []
    for row in data("cards"):
        tflops, price = float(row["dense_bf16_tflops"]), float(row["usd_per_gpu_hour"])
        small = laws.tokens_per_s(tflops, SMALL)
        large = laws.hours(LARGE_TOKENS, laws.tokens_per_s(tflops, LARGE))
        took = laws.hours(SMALL_TOKENS, small)
        fits = row["gpu"] in LARGE_CARDS
        table.append(
            {
                "gpu": row["gpu"],
                "memory_gb": row["memory_gb"],
                "dense_bf16_tflops": row["dense_bf16_tflops"],
                "price_usd_per_gpu_hour": f"{price:.2f}",
                "tokens_per_s_8b_qlora": f"{small:.0f}",
                "usd_per_million_tokens_8b_qlora": f"{laws.usd_per_million_tokens(price, small):.3f}",
                "hours_22_5m_tokens": f"{took:.2f}",
                "cost_22_5m_tokens_usd": f"{took * price:.2f}",
                "hours_70b_8m_tokens": f"{large:.2f}" if fits else "",
                "cost_70b_8m_tokens_usd": f"{large * price:.2f}" if fits else "",
            }
        )
    return table


def planning(billions: float = 70.0) -> Table:
    """GB by method under the bytes-per-parameter rules."""
    return [
        {
            "rule": row["rule"],
            "bytes_per_param_low": row["bytes_low"],
            "bytes_per_param_high": row["bytes_high"],
            "margin": row["margin"],
            "gb_low": f"{laws.memory_gb(billions, float(row['bytes_low'])):.10g}",
            "gb_high": f"{laws.memory_gb(billions, float(row['bytes_high']), float(row['margin'])):.10g}",
            "origin": row["origin"],
        }
        for row in data("bytes")
    ]


# The column that the page judges each method by: with margin for LoRA, and the larger of the two AdamW rules, so
# that 8x H200 (1128 GB) is too small although it covers the 16-byte rule on paper.
JUDGED_BY = {
    "qlora": "qlora",
    "lora": "lora-bf16",
    "full_adam8bit": "full-adam8bit-huggingface",
    "full_adamw": "full-adamw-huggingface",
}


def fit(billions: float = 70.0) -> Table:
    """Methods x rigs: whether the summed nominal memory covers the rule."""
    needed = {row["rule"]: float(row["gb_high"]) for row in planning(billions)}
    table: Table = []
    for row in data("rigs"):
        total = int(row["n_gpus"]) * float(row["memory_gb_per_gpu"])
        verdicts = {method: "yes" if total >= needed[rule] else "no" for method, rule in JUDGED_BY.items()}
        table.append(
            {
                "rig": row["rig"],
                "n_gpus": row["n_gpus"],
                "gpu": row["gpu"],
                "total_memory_gb": f"{total:g}",
                "price_usd_per_hour": row["usd_per_hour"],
                **verdicts,
            }
        )
    return table


def assumed() -> Table:
    """Cost of the page's runs under its assumed hours."""
    table: Table = []
    for row in data("assumed"):
        gpu_hours = int(row["n_gpus"]) * float(row["hours"])
        table.append(
            {
                "method": row["method"],
                "n_gpus": row["n_gpus"],
                "gpu": row["gpu"],
                "price_usd_per_gpu_hour": row["usd_per_gpu_hour"],
                "assumed_hours": row["hours"],
                "gpu_hours": f"{gpu_hours:g}",
                "cost_usd": f"{gpu_hours * float(row['usd_per_gpu_hour']):.2f}",
            }
        )
    return table


def jobs() -> Table:
    """Five jobs: cost on A, on B by the stated speed-up, the cheaper one and by how much."""
    table: Table = []
    for row in data("jobs"):
        n, hours = int(row["n_gpus"]), float(row["hours_on_a"])
        a = hours * float(row["usd_per_hour_a"]) * n
        b = laws.cost_on_b(hours, float(row["speedup"]), float(row["usd_per_hour_b"]), n)
        table.append(
            {
                **{key: row[key] for key in ("job", "method", "n_gpus", "gpu_a", "gpu_b")},
                "price_a_usd_per_gpu_hour": row["usd_per_hour_a"],
                "price_b_usd_per_gpu_hour": row["usd_per_hour_b"],
                "hours_on_a": row["hours_on_a"],
                "speedup_b_over_a": row["speedup"],
                "cost_a_usd": f"{a:.2f}",
                "cost_b_usd": f"{b:.2f}",
                "cheaper": "a" if a < b else "b",
                "saving_percent": f"{(1 - min(a, b) / max(a, b)) * 100:.0f}",
            }
        )
    return table


SETS = {
    one.name: one
    for one in (
        RuleSet(
            "flops-6n-0.3",
            "tokens/s = dense TFLOPS / (6 x parameters) x 0.3; the speed-up of two cards is the ratio of their peaks",
            "seed page 002",
            {"cards": cards},
        ),
        RuleSet(
            "bytes-per-parameter",
            "GB = parameters x bytes by method; a rig fits when its summed nominal memory covers that",
            "seed page 004",
            {"rules": planning, "fit": fit, "runs": assumed},
        ),
        RuleSet(
            "measured-speedup",
            "cost on B = hours on A / speed-up x price of B; rent B only if the speed-up beats the price ratio",
            "seed pages 000 and 001",
            {"jobs": jobs},
        ),
    )
}


def get(name: str) -> RuleSet:
    """A rule set by its name. Raises UnknownName."""
    if name not in SETS:
        raise UnknownName(f"no rule set {name!r}", expected=", ".join(SETS))
    return SETS[name]


def table(name: str, which: str | None = None) -> Table:
    """One table of a rule set, its only one unless named. Raises UnknownName, InvalidInput."""
    chosen = get(name)
    if which is None and len(chosen.tables) > 1:
        raise InvalidInput(f"{name} prints several tables", expected="--table " + ", ".join(chosen.tables))
    key = which or next(iter(chosen.tables))
    if key not in chosen.tables:
        raise UnknownName(f"{name} has no table {key!r}", expected=", ".join(chosen.tables))
    return chosen.tables[key]()


def plan(name: str, model: str, parameters: int, tokens: float) -> Table:
    """A job under a rule set: by card its hours and cost (flops rule), or by rig which methods fit (bytes rule)."""
    chosen = get(name)
    if chosen.name == "bytes-per-parameter":
        return fit(laws.nominal_billions(model, parameters))
    if chosen.name == "measured-speedup":
        raise InvalidInput(
            "measured-speedup needs the hours on card A, which it does not predict",
            hint="perrun rules measured-speedup --table jobs prints the jobs of its page",
        )
    rows: Table = []
    for row in data("cards"):
        speed = laws.tokens_per_s(float(row["dense_bf16_tflops"]), parameters)
        took, price = laws.hours(tokens, speed), float(row["usd_per_gpu_hour"])
        rows.append(
            {
                "gpu": row["gpu"],
                "price_usd_per_gpu_hour": row["usd_per_gpu_hour"],
                "tokens_per_s": f"{speed:.0f}",
                "hours": f"{took:.2f}",
                "usd": f"{took * price:.2f}",
                "usd_per_million_tokens": f"{laws.usd_per_million_tokens(price, speed):.3f}",
            }
        )
    return sorted(rows, key=lambda r: float(r["usd"]))
