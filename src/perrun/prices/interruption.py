"""What a run costs that may be interrupted: expectation, distribution, and from which hazard on-demand is cheaper."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perrun.errors import InvalidInput
from perrun.prices import tables
from perrun.units import SECONDS_PER_HOUR

if TYPE_CHECKING:
    import numpy.typing as npt

RUNS = 20_000
QUANTILES = (0.1, 0.5, 0.9, 0.99)
MOST_EVENTS = 20_000.0  # expected stretches of one run beyond which it never ends and is not simulated


@dataclass(frozen=True, slots=True)
class Risked:
    """One hazard: how often to save, expected hours and dollars, and the quantiles of both [h], [USD]."""

    mtbi_hours: float
    interval_hours: float
    young_hours: float
    expected_hours: float
    usd: float
    interruptions: float
    quantile_hours: dict[float, float]
    quantile_usd: dict[float, float]


@dataclass(frozen=True, slots=True)
class Report:
    """The run at the quiet end, in the middle and at the busy end of what is known of the hazard.

    break_even_mtbi_hours: on-demand is cheaper where interruptions come oftener than this; inf: always.
    """

    low: Risked
    value: Risked
    high: Risked
    on_demand_usd: float
    break_even_mtbi_hours: float
    source: str

    @property
    def cheaper(self) -> str:
        """Which term is cheaper in expectation, said only where the whole range agrees."""
        ends = {risked.usd < self.on_demand_usd for risked in (self.low, self.value, self.high)}
        if len(ends) == 2:
            return "it depends on the hazard"
        return "interruptible" if ends == {True} else "on-demand"


def report(
    hours: float,
    usd_per_hour: float,
    on_demand_usd_per_hour: float,
    *,
    interruption_class: str | None = None,
    mtbi_hours: float | None = None,
    checkpoint_s: float = 60.0,
    restart_s: float | None = None,
    interval_hours: float | None = None,
    seed: int = 0,
) -> Report:
    """`hours` of work at an interruptible price beside the same at the on-demand price [USD/h of the rig].

    The user's own mean time between interruptions goes first, then the provider's published class (a range), then
    the widest prior. Saving at Daly's optimum unless `interval_hours` says otherwise. Raises InvalidInput.
    """
    for name, given in (("hours", hours), ("price", usd_per_hour), ("on-demand price", on_demand_usd_per_hour)):
        if not 0 < given < float("inf"):
            raise InvalidInput(f"{name} is {given:g}", expected="a number above 0")
    known = tables.mtbi_classes()
    if interruption_class is not None and interruption_class not in known:
        raise InvalidInput(f"no interruption class {interruption_class!r}", expected=", ".join(filter(None, known)))
    if mtbi_hours is not None and mtbi_hours <= 0:
        raise InvalidInput(f"mtbi_hours is {mtbi_hours:g}", expected="a number above 0")
    prior = tables.mtbi_hours(interruption_class)
    ends = (mtbi_hours,) * 3 if mtbi_hours is not None else (prior.low, prior.value, prior.high)
    restart = (tables.priors()["restart_s"].value if restart_s is None else restart_s) / SECONDS_PER_HOUR
    checkpoint = checkpoint_s / SECONDS_PER_HOUR
    risked = [_risked(hours, usd_per_hour, mean, checkpoint, restart, interval_hours, seed) for mean in ends]
    said = "your own" if mtbi_hours is not None else f"class {interruption_class or 'not published'}"
    return Report(
        *risked,
        on_demand_usd=hours * on_demand_usd_per_hour,
        break_even_mtbi_hours=_break_even(usd_per_hour / on_demand_usd_per_hour, hours, checkpoint, restart),
        source=said,
    )


def _break_even(price_ratio: float, hours: float, checkpoint: float, restart: float) -> float:
    from perrun.physics import spot

    hazard = float(spot.break_even_hazard(price_ratio, hours, checkpoint, restart))
    return 1.0 / hazard if hazard > 0 else float("inf")


def _risked(
    hours: float, usd: float, mean: float, checkpoint: float, restart: float, interval: float | None, seed: int
) -> Risked:
    from perrun.physics import spot

    hazard = 1.0 / mean
    chosen = min(interval or float(spot.daly_interval(checkpoint, hazard)), hours)
    expected = float(spot.expected_hours(hours, hazard, chosen, checkpoint, restart))
    found: dict[float, float] = {}
    if expected * hazard < MOST_EVENTS:
        import numpy as np

        runs: npt.NDArray[Any] = spot.simulated_hours(hours, hazard, chosen, checkpoint, restart, RUNS, seed)
        found = {q: float(h) for q, h in zip(QUANTILES, np.quantile(runs, QUANTILES), strict=True)}
    return Risked(
        mtbi_hours=mean,
        interval_hours=chosen,
        young_hours=float(spot.young_interval(checkpoint, hazard)),
        expected_hours=expected,
        usd=expected * usd,
        interruptions=expected * hazard,
        quantile_hours=found,
        quantile_usd={q: h * usd for q, h in found.items()},
    )
