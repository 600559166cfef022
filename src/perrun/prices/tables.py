"""The shipped tables beside this file: how providers bill, priors, interruption classes, published market figures."""

import csv
from dataclasses import dataclass
from functools import cache
from importlib import resources


def text(name: str) -> str:
    """A table of this package as it stands."""
    return resources.files("perrun.prices").joinpath(name).read_text(encoding="utf-8")


def shipped(name: str) -> list[dict[str, str]]:
    """Rows of a table of this package, empty cells as ''."""
    return list(csv.DictReader(text(name).splitlines()))


@cache
def providers() -> dict[str, dict[str, str]]:
    """Billing practice by provider, rows of providers.csv; an empty cell is not known."""
    return {row["provider"]: row for row in shipped("providers.csv")}


@dataclass(frozen=True, slots=True)
class Prior:
    """An assumed figure where nothing is published: the value, and what makes a run cheap (low) or dear (high)."""

    low: float
    value: float
    high: float


@cache
def priors() -> dict[str, Prior]:
    """Rows of priors.csv."""
    return {
        row["name"]: Prior(float(row["low"]), float(row["value"]), float(row["high"])) for row in shipped("priors.csv")
    }


@cache
def mtbi_classes() -> dict[str, dict[str, str]]:
    """Rows of interruption_classes.csv by class; '' is no class published."""
    return {row["class"]: row for row in shipped("interruption_classes.csv")}


@cache
def mtbi_hours(interruption_class: str | None) -> Prior:
    """Mean hours between interruptions that a published monthly class stands for; low is the quietest end.

    Source: interruption_classes.csv, which states the arithmetic; None or an unknown class gives the widest range.
    """
    rows = mtbi_classes()
    row = rows.get(interruption_class or "", rows[""])
    return Prior(float(row["mtbi_hours_high"]), float(row["mtbi_hours"]), float(row["mtbi_hours_low"]))


@cache
def interruption_classes() -> dict[tuple[str, str, str], str]:
    """(provider, instance, region) -> share interrupted in a month, as the provider publishes it."""
    return {(row["provider"], row["instance"], row["region"]): row["class"] for row in shipped("interruptions.csv")}


@cache
def unsaid() -> dict[str, str]:
    """Names in the shipped snapshot that say no form factor, and the card that stands in: the slowest candidate.

    A table, because finding the candidates of a name costs more than the rest of reading the snapshot.
    """
    return {row["name"]: row["stands_in"] for row in shipped("unsaid.csv")}
