"""What a user wants of a plan."""

from dataclasses import dataclass, field
from typing import Any

from perrun.errors import InvalidInput
from perrun.estimator import MIN_FIT
from perrun.overheads import STOPS

SORTS = ("usd", "hours", "usd_per_million_tokens", "fit", "risk")


@dataclass(frozen=True, slots=True)
class Wish:
    """What the user wants of a plan. fixed: strategy settings that are not searched, by their field names.

    n_gpus: run on so many GPUs, in the smallest machine of each provider that holds them; max_gpus: clusters of a
    provider's largest machine are made up to so many. keep_days: days that the disk is kept after the run. mtbi_hours:
    the user's own mean time between interruptions, instead of published classes. hour_usd: what an hour of waiting is
    worth, added to the dollars by which plans are ranked. runs: experiments, of which per_day are started in a day; the
    budget is for all of them, the deadline for one. front: only plans that no other beats in dollars, hours and risk.
    """

    fixed: dict[str, Any] = field(default_factory=dict[str, Any])
    budget_usd: float | None = None
    deadline_h: float | None = None
    gpus: tuple[str, ...] = ()
    providers: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    terms: tuple[str, ...] = ()
    max_gpus: int | None = None
    n_gpus: int | None = None
    keep_days: float = 0.0
    mtbi_hours: float | None = None
    hour_usd: float = 0.0
    runs: int = 1
    per_day: float | None = None
    front: bool = False
    min_fit: float = MIN_FIT
    sort: str = "usd"
    limit: int | None = None

    def check(self) -> None:
        """Raises InvalidInput for wishes that contradict each other or that nothing can meet."""
        if self.n_gpus is not None and self.max_gpus is not None and self.n_gpus > self.max_gpus:
            raise InvalidInput(f"--n-gpus {self.n_gpus} and --max-gpus {self.max_gpus} contradict each other")
        if self.per_day is not None and self.per_day <= 0:
            raise InvalidInput(f"{self.per_day:g} runs a day", expected="above 0")
        if self.per_day is not None and self.runs == 1:
            raise InvalidInput(
                f"{self.per_day:g} runs a day of one run", hint="--runs says how many, or leave --per-day out"
            )
        if self.mtbi_hours is not None and self.terms and not set(self.terms) & set(STOPS):
            raise InvalidInput(
                f"--mtbi and --term {', '.join(self.terms)} contradict each other",
                expected=f"--term {', '.join(STOPS)}",
            )
        if self.hour_usd < 0:
            raise InvalidInput(f"an hour of waiting is worth ${self.hour_usd:g}", expected="0 or more")
        if self.sort not in SORTS:
            raise InvalidInput(f"plans cannot be sorted by {self.sort!r}", expected=", ".join(SORTS))
        if self.sort == "hours" and self.hour_usd:
            raise InvalidInput(
                "sorted by hours, what an hour is worth changes nothing", hint="leave --sort or --hour-is-worth out"
            )
