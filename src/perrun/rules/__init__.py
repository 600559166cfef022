"""Published rule sets beside our own model, so that a reader can see how others count."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date

from perrun.errors import InvalidInput, UnknownName
from perrun.rules import bytes_rule, flops, laws, speedup
from perrun.rules.data import Table, data
from perrun.terms import Offer, Rig

__all__ = ["SETS", "RuleSet", "Table", "data", "get", "offers", "plan", "table"]


@dataclass(frozen=True, slots=True)
class RuleSet:
    """One published way to count: where it stands, what it says, the tables that it prints, the first unless asked."""

    name: str
    says: str
    source: str
    tables: dict[str, Callable[[], Table]]
    first: str | None = None


SETS = {
    one.name: one
    for one in (
        RuleSet(
            "flops-6n-0.3",
            "tokens/s = dense TFLOPS / (6 x parameters) x 0.3; the speed-up of two cards is the ratio of their peaks",
            "seed page 002",
            {
                "cards": flops.cards,
                "memory": flops.memory,
                "speed": flops.speed,
                "prices": flops.prices,
                "run-8b": flops.small_run,
                "run-70b": flops.large_run,
            },
            "cards",
        ),
        RuleSet(
            "bytes-per-parameter",
            "GB = parameters x bytes by method; a rig fits when its summed nominal memory covers that",
            "seed page 004",
            {
                "rules": bytes_rule.planning,
                "rigs": bytes_rule.rigs,
                "fit": bytes_rule.fit,
                "runs": bytes_rule.assumed,
                "methods": bytes_rule.methods,
            },
        ),
        RuleSet(
            "measured-speedup",
            "cost on B = hours on A / speed-up x price of B; rent B only if the speed-up beats the price ratio",
            "seed pages 000 and 001",
            {"jobs": speedup.jobs, "decisions": speedup.decisions, "differs": speedup.differs},
            "jobs",
        ),
    )
}


def get(name: str) -> RuleSet:
    """A rule set by its name. Raises UnknownName."""
    if name not in SETS:
        raise UnknownName(f"no rule set {name!r}", expected=", ".join(SETS))
    return SETS[name]


def named(name: str, which: str | None = None) -> str:
    """A table of a rule set, or its first where it has one. Raises UnknownName, InvalidInput."""
    chosen = get(name)
    key = which or chosen.first
    if key is None:
        raise InvalidInput(f"{name} prints several tables", expected="--table " + ", ".join(chosen.tables))
    if key not in chosen.tables:
        raise UnknownName(f"{name} has no table {key!r}", expected=", ".join(chosen.tables))
    return key


def table(name: str, which: str | None = None) -> Table:
    """One table of a rule set as its page prints it. Raises UnknownName, InvalidInput."""
    return get(name).tables[named(name, which)]()


def plan(name: str, model: str, parameters: int, tokens: float) -> Table:
    """A job under a rule set: by card its hours and cost (flops rule), or by rig which methods fit (bytes rule)."""
    chosen = get(name)
    if chosen.name == "bytes-per-parameter":
        return bytes_rule.fit(laws.nominal_billions(model, parameters))
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


# Cards whose form factor a page leaves open, as the ones that its figures are of (NVLink, 989 TFLOPS, 4.8 TB/s).
CARDS = {
    "A100-40GB": "A100-SXM4-40GB",
    "A100-80GB": "A100-SXM4-80GB",
    "H100-80GB": "H100-SXM-80GB",
    "H200-141GB": "H200-SXM-141GB",
}
PRICED_ON = {"flops-6n-0.3": None, "bytes-per-parameter": date(2026, 10, 29), "measured-speedup": date(2026, 10, 19)}


def card(name: str) -> str:
    """A card of a page as one of ours."""
    return CARDS.get(name, name)


def offers(name: str, today: date) -> list[Offer]:
    """What a page prices, as offers, so that our model can count at its prices.

    today: day of prices that the page does not date (page 002). Raises UnknownName.
    """
    chosen = get(name)
    found: dict[Rig, float] = {}
    if name == "measured-speedup":
        for row in data("jobs"):
            n = int(row["n_gpus"])
            for side in ("a", "b"):
                found[Rig(gpu=row[f"gpu_{side}"], n_gpus=n)] = n * float(row[f"usd_per_hour_{side}"])
    elif name == "flops-6n-0.3":
        found = {Rig(gpu=card(row["gpu"])): float(row["usd_per_gpu_hour"]) for row in data("cards")}
    else:
        found = {
            Rig(gpu=card(row["gpu"]), n_gpus=int(row["n_gpus"])): float(row["usd_per_hour"]) for row in data("rigs")
        }
    day = PRICED_ON[name] or today
    return [
        Offer(provider="the page", usd_per_hour=usd, rig=rig, observed_at=day, source=chosen.source)
        for rig, usd in found.items()
    ]
