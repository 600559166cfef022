"""What comparing answers: two sides, their difference, and tables of such."""

from typing import Any

from pydantic import Field

from perrun.terms.answers import Rejected
from perrun.terms.nouns import CostLine, Job, Noun, Precision, Rig, Share, Strategy


class Side(Noun):
    """One of two things compared: what it costs, how it is laid out, what bounds it."""

    name: str = Field(default="", description="what tells it apart from the other")
    rig: Rig = Field(description="what it runs on")
    precision: Precision = Field(description="of the job there")
    usd_per_gpu_hour: float = Field(description="[USD]")
    price_of: str = Field(description="where the price comes from")
    hours: float = Field(description="of training [h]")
    hours_of: str = Field(default="predicted", description="predicted, or that somebody typed them in")
    usd: float = Field(description="per run: the sum of cost_lines [USD]")
    cost_lines: list[CostLine] = Field(
        default_factory=list[CostLine], description="the bill; the training alone where no offer is named"
    )
    tokens_per_s: float = Field(description="all GPUs")
    strategy: Strategy = Field(description="fastest that fits")
    bound_by: str = Field(description="the part of a step that takes the most time, with its share")
    time_lines: dict[str, float] = Field(
        default_factory=dict[str, float], description="hours of the training by part of a step [h]"
    )
    needs_gib: float | None = Field(default=None, description="device memory of one GPU [GiB]")
    memory_lines: dict[str, float] = Field(
        default_factory=dict[str, float], description="named lines of it; they sum to needs_gib [GiB]"
    )


class Flip(Noun):
    """One thing that may turn a verdict: what it is now, and from what value the other side wins."""

    what: str = Field(description="price, speed-up, length of rows, epochs, an hour of waiting")
    now: float = Field(description="its value in the comparison")
    at: float | None = Field(default=None, description="value from which the other side wins; None: at none")
    unit: str = Field(default="", description="of both")
    in_reason: bool = Field(description="whether such a value is on offer, within the range, or of a usual run")
    said: str = Field(description="the same in words")


class Comparison(Noun):
    """The break-even between two things on one job: rent B only if the speed-up beats the price ratio."""

    job: Job = Field(description="as understood")
    a: Side = Field(description="the first")
    b: Side = Field(description="the second")
    changes: dict[str, Any] = Field(
        default_factory=dict[str, Any], description="settings of B that differ from A's; None: not fixed"
    )
    speedup: float = Field(description="hours of A over hours of B; on one job tokens/s of B over A")
    speedup_low: float = Field(description="lower end of the 80 % range")
    speedup_high: float = Field(description="upper end of the 80 % range")
    price_ratio: float = Field(description="price of B over A: the speed-up at which the training costs the same")
    break_even_speedup: float | None = Field(
        default=None, description="the speed-up at which both bills are the same; None: at none"
    )
    usd_a: float = Field(description="per run [USD]")
    usd_b: float = Field(description="per run [USD]")
    difference: list[CostLine] = Field(
        default_factory=list[CostLine], description="B less A, line by line; they sum to usd_b - usd_a"
    )
    probability_b_cheaper: Share = Field(description="by the range of the speed-up")
    flip_price_b: float = Field(description="price of B per GPU-hour at which the verdict flips; 0: at none [USD]")
    flip_price_b_low: float = Field(description="at speedup_low [USD]")
    flip_price_b_high: float = Field(description="at speedup_high [USD]")
    hours_saved: float = Field(description="wall-clock hours that B saves on this run")
    hour_worth: float | None = Field(
        default=None, description="what a saved hour must be worth for the dearer one to pay [USD]; None: it saves none"
    )
    hour_usd: float = Field(default=0, description="what an hour of waiting is worth to the user [USD]")
    verdict: str = Field(description="one line")
    sensitivity: list[Flip] = Field(default_factory=list[Flip], description="what would turn the verdict")
    flips: str = Field(default="", description="the same in one line")
    fp8: "Comparison | None" = Field(default=None, description="the same with FP8 on B, where B can")
    fp8_note: str = Field(default="", description="why there is no FP8 comparison")
    prices_age: str = Field(default="", description="how old the prices are, in words: over a week is said")


class PricedJob(Noun):
    """One job of a table of jobs, on two rigs."""

    what: str = Field(description="the job in words")
    setup: str = Field(description="how it is run")
    compared: Comparison | None = Field(default=None, description="its break-even")
    why_not: str | None = Field(default=None, description="why there is none")


class Decision(Noun):
    """What to rent for a job, and why: every word follows from the options."""

    what: str = Field(description="the job in words")
    rent: str = Field(description="the cheapest rig that holds it; empty where none does")
    why: str = Field(description="memory, speed against price, and what the fastest costs")
    job: Job = Field(description="as understood")
    options: list[Side] = Field(description="rigs that hold it, cheapest first")
    rejected: list[Rejected] = Field(default_factory=list[Rejected], description="rigs that do not, with the reason")


class JobsAnswer(Noun):
    """Usual jobs on two cards, and what to rent for each kind of job."""

    jobs: list[PricedJob] = Field(description="one row a job")
    decisions: list[Decision] = Field(description="one row a kind of job")
    assumptions: list[str] = Field(description="what the rows rest on")
    prices_age: str = Field(default="", description="how old the prices are, in words: over a week is said")


class MethodCost(Noun):
    """What a method costs where it is cheapest, per hour of hardware and per run, over the first method."""

    method: str = Field(description="full, lora, qlora, ...")
    rig_per_hour: Rig | None = Field(description="cheapest by the hour that holds it; None: none on offer does")
    usd_per_hour: float | None = Field(description="of that rig [USD/h]")
    ratio_per_hour: float | None = Field(description="over the first method")
    rig_per_run: Rig | None = Field(description="cheapest for the run")
    usd_per_run: float | None = Field(description="through it [USD]")
    ratio_per_run: float | None = Field(description="over the first method")
    why_not: str | None = Field(default=None, description="the nearest miss, where none holds it")


class MethodsAnswer(Noun):
    """Methods of one model against each other."""

    job: Job = Field(description="as understood")
    rows: list[MethodCost] = Field(description="one a method")
    verdict: str = Field(description="one line")
    prices_age: str = Field(default="", description="how old the prices are, in words: over a week is said")
