"""The shipped snapshot of offers, so that the first plan needs no network; and the user's own price file.

Imports neither a database nor a network library: this is on the start-up path of `perrun plan`.
"""

import csv
from collections.abc import Iterator
from datetime import date
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, cast

from perrun.errors import AmbiguousName, InvalidInput, PerrunError
from perrun.facts import gpus
from perrun.terms import GPU, Offer, Rig, Term

COLUMNS = (
    "provider",
    "instance",
    "region",
    "term",
    "gpu",
    "n_gpus",
    "n_nodes",
    "usd_per_hour",
    "observed_at",
    "date_precision",
    "block_gpu_hours",
    "source",
)
REQUIRED = ("provider", "gpu", "n_gpus", "usd_per_hour", "observed_at")
TERMS = ("on-demand", "interruptible", "reserved", "prepaid-block", "market-floor", "owned")
# No GPU-hour is sold outside these bounds; outside lie prices in cents, per month or per another count.
USD_PER_GPU_HOUR = (0.01, 40.0)


@cache
def providers() -> dict[str, dict[str, str]]:
    """Billing practice by provider, rows of providers.csv."""
    return {row["provider"]: row for row in _shipped("providers.csv")}


@cache
def priors() -> dict[str, float]:
    """Assumed figures where nothing is published, rows of priors.csv."""
    return {row["name"]: float(row["value"]) for row in _shipped("priors.csv")}


def _shipped(name: str) -> list[dict[str, str]]:
    text = resources.files("perrun.prices").joinpath(name).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


@cache
def card_of(name: str) -> tuple[str, str]:
    """(canonical id, note) of a card as a price list names it.

    Where the list does not say the form factor, the slowest of the candidates stands in, so that a plan never
    promises the faster one. Raises UnknownName.
    """
    try:
        return gpus.get(name).id, ""
    except AmbiguousName:
        slowest = min(gpus.candidates(name), key=_pace)
        return slowest.id, "form factor not said"


def _pace(gpu: GPU) -> tuple[float, float]:
    return (gpu.bf16_dense_tflops or gpu.fp16_dense_tflops or 0.0, gpu.bandwidth_gb_s or 0.0)


def offers(as_of: date | None = None) -> list[Offer]:
    """Offers of the shipped snapshot, none observed after `as_of`."""
    known = _shipped_offers()
    return list(known) if as_of is None else [offer for offer in known if offer.observed_at <= as_of]


@cache
def _shipped_offers() -> tuple[Offer, ...]:
    return tuple(_offer(row) for row in _shipped("snapshot.csv"))


def _number(text: str | None) -> float | None:
    return float(text) if text else None


def _offer(row: dict[str, str]) -> Offer:
    """An Offer without validation: shipped rows are validated by a test, the user's own by `load`."""
    gpu, note = card_of(row["gpu"])
    billing = providers().get(row["provider"], {})
    rig = Rig.model_construct(
        gpu=gpu,
        n_gpus=int(row["n_gpus"]),
        n_nodes=int(row.get("n_nodes") or 1),
        interconnect=None,
        usable_gib=None,
        host_ram_gib=None,
        power_limit_w=None,
    )
    return Offer.model_construct(
        provider=row["provider"],
        instance=f"{row.get('instance') or ''} ({note})".strip() if note else row.get("instance") or "",
        region=row.get("region") or "",
        term=cast(Term, row.get("term") or "on-demand"),
        usd_per_hour=float(row["usd_per_hour"]),
        rig=rig,
        billing_increment_s=_number(billing.get("billing_increment_s")) or priors()["billing_increment_s"],
        minimum_s=_number(billing.get("minimum_s")) or 0.0,
        storage_usd_per_gb_month=_number(billing.get("storage_usd_per_gb_month")),
        egress_usd_per_gb=_number(billing.get("egress_usd_per_gb")),
        interruption_class=None,
        block_gpu_hours=_number(row.get("block_gpu_hours")),
        observed_at=date.fromisoformat(row["observed_at"]),
        source=row.get("source") or "",
    )


def load(path: str | Path) -> list[Offer]:
    """The user's own price file (CSV with a header; columns as in snapshot.csv, the last ones may be left out).

    Raises InvalidInput naming line, column and what is allowed; nothing is returned from a file with an error.
    """
    file = Path(path)
    if not file.is_file():
        raise InvalidInput(f"no price file {path}", expected="a CSV file with columns " + ", ".join(REQUIRED))
    with file.open(encoding="utf-8", newline="") as handle:
        reader = csv.DictReader(handle)
        names = reader.fieldnames or []
        missing = [name for name in REQUIRED if name not in names]
        unknown = [name for name in names if name not in COLUMNS]
        if missing or unknown:
            wrong = f"has no column {missing[0]!r}" if missing else f"has an unknown column {unknown[0]!r}"
            raise InvalidInput(f"{path} {wrong}", expected="columns " + ", ".join(COLUMNS))
        rows = list(reader)
    if not rows:
        raise InvalidInput(f"{path} holds no price", expected="at least one row under the header")
    found = list(_checked(rows, str(path)))
    return [_offer(row) for row in found]


def _checked(rows: list[dict[str, Any]], path: str) -> Iterator[dict[str, str]]:
    for line, row in enumerate(rows, start=2):
        where = f"{path} line {line}"
        for name in REQUIRED:
            if not row[name]:
                raise InvalidInput(f"{where}: {name} is empty", expected=_allowed(name))
        _check_numbers(row, where)
        if row.get("term") and row["term"] not in TERMS:
            raise InvalidInput(f"{where}: term is {row['term']!r}", expected=", ".join(TERMS))
        try:
            date.fromisoformat(row["observed_at"])
        except ValueError:
            raise InvalidInput(
                f"{where}: observed_at is {row['observed_at']!r}", expected="a date YYYY-MM-DD"
            ) from None
        try:
            card_of(row["gpu"])
        except PerrunError as why:
            raise InvalidInput(f"{where}: {why.what}", expected=why.expected, hint=why.hint) from None
        yield row


def _allowed(name: str) -> str:
    return {"observed_at": "the date on which the price was seen, YYYY-MM-DD"}.get(name, f"a {name}")


def _check_numbers(row: dict[str, str], where: str) -> None:
    for name in ("n_gpus", "n_nodes", "usd_per_hour", "block_gpu_hours"):
        text = row.get(name)
        if not text:
            continue
        try:
            value = float(text)
        except ValueError:
            raise InvalidInput(f"{where}: {name} is {text!r}", expected="a number") from None
        whole = name in ("n_gpus", "n_nodes")
        if not value > 0 or (whole and value != int(value)):
            raise InvalidInput(f"{where}: {name} is {text}", expected=f"a {'whole ' if whole else ''}number above 0")
    low, high = USD_PER_GPU_HOUR
    per_gpu = float(row["usd_per_hour"]) / float(row["n_gpus"])
    if not low <= per_gpu <= high:
        raise InvalidInput(
            f"{where}: usd_per_hour is {row['usd_per_hour']} for {row['n_gpus']} GPUs",
            expected=f"between ${low} and ${high} per GPU-hour, in dollars, for the whole instance",
        )
