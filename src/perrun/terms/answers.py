"""What the verbs answer, made of the nouns."""

from datetime import date
from typing import Any, Literal

from pydantic import Field

from perrun.terms.nouns import Job, Noun, Plan, Precision, Rig, Share, Strategy


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
    fits_probability: Share = Field(description="of that strategy")
    usd_per_hour: float | None = Field(description="cheapest offer of the whole rig")
    usd_per_run: float | None = Field(description="through that offer [USD]")
    why_not: str | None = Field(default=None, description="reason, unless the mark is yes")


class FitAnswer(Noun):
    """Methods x rigs."""

    job: Job = Field(description="as understood")
    methods: list[str] = Field(description="the columns")
    cells: list[FitCell] = Field(description="row by row")
    prices_age: str = Field(default="", description="how old the prices are, in words: over a week is said")


class Side(Noun):
    """One of two rigs compared: what it costs, how it is laid out, what bounds it."""

    rig: Rig = Field(description="what it runs on")
    precision: Precision = Field(description="of the job there")
    usd_per_gpu_hour: float = Field(description="[USD]")
    price_of: str = Field(description="where the price comes from")
    hours: float = Field(description="of training [h]")
    usd: float = Field(description="training hours x price x GPUs")
    tokens_per_s: float = Field(description="all GPUs")
    strategy: Strategy = Field(description="fastest that fits")
    bound_by: str = Field(description="the part of a step that takes the most time, with its share")


class Comparison(Noun):
    """The break-even between two rigs on one job: rent B only if the speed-up beats the price ratio."""

    job: Job = Field(description="as understood")
    a: Side = Field(description="the first rig")
    b: Side = Field(description="the second rig")
    speedup: float = Field(description="tokens/s of B over A")
    speedup_low: float = Field(description="lower end of the 80 % range")
    speedup_high: float = Field(description="upper end of the 80 % range")
    price_ratio: float = Field(description="price of B over A: the speed-up at which both cost the same")
    usd_a: float = Field(description="per run [USD]")
    usd_b: float = Field(description="per run [USD]")
    probability_b_cheaper: Share = Field(description="by the range of the speed-up")
    flip_price_b: float = Field(description="price of B per GPU-hour at which the verdict flips [USD]")
    flip_price_b_low: float = Field(description="at speedup_low [USD]")
    flip_price_b_high: float = Field(description="at speedup_high [USD]")
    hours_saved: float = Field(description="wall-clock hours that B saves on this run")
    hour_worth: float | None = Field(default=None, description="what a saved hour must be worth for B to pay [USD]")
    verdict: str = Field(description="one line")
    fp8: "Comparison | None" = Field(default=None, description="the same with FP8 on B, where B can")
    fp8_note: str = Field(default="", description="why there is no FP8 comparison")
    prices_age: str = Field(default="", description="how old the prices are, in words: over a week is said")
