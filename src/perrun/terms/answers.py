"""What the verbs answer, made of the nouns."""

from datetime import date
from typing import Any, ClassVar, Literal

from pydantic import Field

from perrun.terms.nouns import Job, Noun, Plan, Rig, Share


class Experiments(Noun):
    """Several runs through one plan."""

    runs: int = Field(description="how many")
    usd: float = Field(description="of all [USD]")
    hours: float = Field(description="of training, one after the other [h]")
    days: float = Field(description="on the calendar")


class Rejected(Noun):
    """A rig that was considered and dropped, with the nearest miss."""

    rig: Rig = Field(description="what was considered")
    reason: str = Field(description="why it was dropped")
    needs_gib: float | None = Field(default=None, description="memory of the strategy that needs least [GiB]")
    has_gib: float | None = Field(default=None, description="usable memory of one GPU [GiB]")


class Varied(Noun):
    """The best plan of a job that differs in some settings, or why there is none."""

    change: dict[str, Any] = Field(description="settings that differ, by name")
    means: str = Field(default="", description="what the change does to the training")
    plan: Plan | None = Field(default=None, description="the best")
    why_not: str | None = Field(default=None, description="why there is no plan")


class PlanAnswer(Noun):
    """The answer of `plan`: ranked plans, what was rejected and why, the verdict in one line."""

    LISTED: ClassVar[str] = "plans"
    COLUMNS: ClassVar[tuple[str, ...]] = (
        "offer.rig.gpu",
        "offer.rig.n_gpus",
        "offer.provider",
        "offer.term",
        "offer.usd_per_hour",
        "estimate.memory.device_gib",
        "estimate.fits_probability",
        "hours",
        "usd_low",
        "usd",
        "usd_high",
    )

    job: Job = Field(description="as understood")
    plans: list[Plan] = Field(description="best first")
    rejected: list[Rejected] = Field(description="rigs on offer that cannot run the job")
    verdict: str = Field(description="one line")
    assumptions: list[str] = Field(description="what the answer rests on")
    experiments: Experiments | None = Field(default=None, description="several runs through the best plan")
    alternatives: list[Varied] = Field(default_factory=list[Varied], description="other jobs, when asked for")
    prices_as_of: date | None = Field(default=None, description="day of the newest price")
    prices_age: str = Field(default="", description="how old the prices are, in words: over a week is said")


class FitCell(Noun):
    """One method on one rig: what its best strategy needs of what the card has, and what a run costs there."""

    rig: Rig = Field(description="the row")
    method: str = Field(description="the column")
    mark: Literal["yes", "tight", "no"] = Field(description="fits, may fit, does not")
    needs_gib: float | None = Field(description="device memory of one GPU; None: the rig cannot run the method")
    has_gib: float | None = Field(description="usable memory of one GPU [GiB]")
    headroom_gib: float | None = Field(default=None, description="has_gib less needs_gib; below 0: what is missing")
    fits_probability: Share = Field(description="of that strategy")
    usd_per_hour: float | None = Field(description="cheapest on-demand offer of the whole machine [USD/h]")
    usd_per_run: float | None = Field(description="through that offer [USD]")
    sold_gpus: int | None = Field(
        default=None, description="GPUs of the smallest machine sold, billed whole, where it has more than the rig"
    )
    why_not: str | None = Field(default=None, description="reason, unless the mark is yes")


class FitAnswer(Noun):
    """Methods x rigs."""

    LISTED: ClassVar[str] = "cells"
    COLUMNS: ClassVar[tuple[str, ...]] = (
        "rig.gpu",
        "rig.n_gpus",
        "method",
        "mark",
        "needs_gib",
        "has_gib",
        "usd_per_run",
    )

    job: Job = Field(description="as understood")
    methods: list[str] = Field(description="the columns")
    cells: list[FitCell] = Field(description="row by row")
    prices_age: str = Field(default="", description="how old the prices are, in words: over a week is said")
