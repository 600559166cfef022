"""One of the two things that are compared: a job on a rig at a price, laid out at its fastest."""

import statistics
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from perrun import cost, estimator, search
from perrun.errors import InvalidInput, MissingFact, NothingFits
from perrun.estimator import MIN_FIT
from perrun.terms import CostLine, Estimate, Job, Model, Offer, Rig, Side, Strategy
from perrun.units import SECONDS_PER_HOUR

LEAST_SAID = 0.01  # probability
MOST_NAMED = 3  # changes that a name can hold
PREDICTED = "predicted"


@dataclass(frozen=True, slots=True)
class Price:
    """Dollars per GPU-hour, where they come from, and the days on which the offers behind them were seen.

    offer: what is bought where one is named; its whole bill counts then, and the training alone where none is.
    """

    usd: float
    source: str
    days: tuple[date, ...] = ()
    offer: Offer | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """What is compared. hours: of training as the user measured or assumes them; None: as predicted."""

    job: Job
    model: Model
    rig: Rig
    price: Price
    fixed: dict[str, Any] = field(default_factory=dict[str, Any])
    hours: float | None = None


@dataclass(frozen=True, slots=True)
class Laid:
    """A choice at its fastest strategy that fits."""

    choice: Choice
    strategy: Strategy
    estimate: Estimate

    @property
    def hours(self) -> float:
        """Hours of training as predicted."""
        return self.choice.job.tokens / self.estimate.tokens_per_s / SECONDS_PER_HOUR


def market_price(gpu: str, offers: list[Offer], term: str = "on-demand") -> Price:
    """The median price per GPU-hour of a card over offers of one term. Raises MissingFact when nobody sells it so."""
    found = [offer for offer in offers if offer.rig.gpu == gpu and offer.term == term]
    if not found:
        raise _unsold(gpu, term)
    days = tuple(offer.observed_at for offer in found)
    median = statistics.median(offer.usd_per_hour / offer.rig.n_gpus for offer in found)
    return Price(median, f"median of {len(found)} {term} offers, newest {max(days)}", days)


def offer_price(rig: Rig, offers: list[Offer], term: str, provider: str) -> Price:
    """The price of a rig at one provider: its smallest machine that holds the GPUs, billed whole, times the nodes.

    Raises MissingFact when the provider does not sell the card so, or no machine that is large enough.
    """
    sold = [o for o in offers if (o.rig.gpu, o.term, o.provider) == (rig.gpu, term, provider) and o.rig.n_nodes == 1]
    if not sold:
        raise _unsold(rig.gpu, term, provider)
    wanted = rig.n_gpus // rig.n_nodes
    nodes = cost.smallest_node(sold, wanted)
    if not nodes:
        most = max(o.rig.n_gpus for o in sold)
        raise MissingFact(f"{provider} sells no machine with {wanted} {rig.gpu}", expected=f"at most {most}")
    (node,) = nodes
    whole = rig.model_copy(update={"n_gpus": node.rig.n_gpus * rig.n_nodes})
    offer = node.model_copy(update={"rig": whole, "usd_per_hour": node.usd_per_hour * rig.n_nodes})
    billed = f", {whole.n_gpus} GPUs are billed" if whole.n_gpus > rig.n_gpus else ""
    source = f"{provider}, {term}, {offer.observed_at}{billed}"
    return Price(offer.usd_per_hour / rig.n_gpus, source, (offer.observed_at,), offer)


def _unsold(gpu: str, term: str, provider: str | None = None) -> MissingFact:
    return MissingFact(
        f"no {term} price of {gpu}" + (f" at {provider}" if provider else ""),
        hint="give prices with --price-a and --price-b",
    )


def laid_out(choice: Choice) -> Laid:
    """A choice at its fastest strategy that fits. Raises what `search.best` raises, InvalidInput and NothingFits."""
    found, rejected = search.best(choice.job, choice.model, [choice.rig], choice.fixed, MIN_FIT)
    if rejected:
        raise InvalidInput(f"{choice.rig.gpu}: {rejected[0].reason}")
    best = found[0]
    if best.strategy is None:
        raise NothingFits(_missing(choice, best), hint="more GPUs (--n-gpus), another method, or shorter rows")
    answer = estimator.answer(estimator.ask(choice.job, best.strategy, choice.rig, choice.model))
    return Laid(choice, best.strategy, answer)


def _missing(choice: Choice, best: search.Best) -> str:
    what = f"{choice.job.method} of {choice.job.model}"
    if best.needs_gib != best.needs_gib:  # nan: nothing could be laid out
        return f"{what} on {choice.rig}: its GPUs cannot share a global batch of {choice.job.global_batch} evenly"
    sure = f" (fits with {best.fits:.0%})" if best.fits >= LEAST_SAID else ""
    return f"{what} does not fit {choice.rig}: needs {best.needs_gib:.1f} GiB, has {best.has_gib:.1f}{sure}"


def side(laid: Laid, name: str, hours: float | None = None, hours_of: str = PREDICTED) -> Side:
    """What a choice costs in `hours` of training (None: as predicted), and what bounds it."""
    choice, answer = laid.choice, laid.estimate
    took = laid.hours if hours is None else hours
    bill = _bill(choice, took)
    widest = max(answer.time_lines.items(), key=lambda item: item[1])
    return Side(
        name=name,
        rig=choice.rig,
        precision=choice.job.precision,
        usd_per_gpu_hour=choice.price.usd,
        price_of=choice.price.source,
        hours=took,
        hours_of=hours_of,
        usd=cost.total(bill),
        cost_lines=bill,
        tokens_per_s=choice.job.tokens / took / SECONDS_PER_HOUR,
        strategy=laid.strategy,
        bound_by=f"{widest[0]} ({widest[1] / answer.step_s:.0%})",
        time_lines={part: took * seconds / answer.step_s for part, seconds in answer.time_lines.items() if seconds},
        needs_gib=answer.memory.device_gib,
        memory_lines=answer.memory.lines,
    )


def _bill(choice: Choice, hours: float) -> list[CostLine]:
    """The bill of an offer; where none is named, nothing but the training is known."""
    offer = choice.price.offer
    if offer is None:
        usd = hours * choice.price.usd * choice.rig.n_gpus
        return [CostLine(name="training", quantity=hours, unit="h", usd=usd)]
    used = choice.rig.n_gpus if choice.rig.n_gpus < offer.rig.n_gpus else None
    return cost.cost_lines(hours, choice.job, choice.model, offer, used_gpus=used)


def sides(a: Laid, b: Laid) -> tuple[Side, Side]:
    """Both sides. Where the hours of one alone were typed in, the other's follow by the predicted speed-up."""
    typed_a, typed_b = a.choice.hours, b.choice.hours
    name_a, name_b = names(a.choice, b.choice)
    said = "typed in"
    if typed_a is None and typed_b is None:
        return side(a, name_a), side(b, name_b)
    if typed_a is not None and typed_b is not None:
        return side(a, name_a, typed_a, said), side(b, name_b, typed_b, said)
    if typed_a is not None:
        followed = typed_a * b.hours / a.hours
        return side(a, name_a, typed_a, said), side(b, name_b, followed, f"{said} for {name_a}, over the speed-up")
    assert typed_b is not None
    followed = typed_b * a.hours / b.hours
    return side(a, name_a, followed, f"{said} for {name_b}, times the speed-up"), side(b, name_b, typed_b, said)


def changes(a: Choice, b: Choice) -> dict[str, tuple[Any, Any]]:
    """Settings of the job and of the layout in which two choices differ, by name: (of A, of B); None: not fixed."""
    jobs = {
        name: (getattr(a.job, name), getattr(b.job, name))
        for name in type(a.job).model_fields
        if getattr(a.job, name) != getattr(b.job, name)
    }
    fixed = {
        name: (a.fixed.get(name), b.fixed.get(name))
        for name in dict.fromkeys((*a.fixed, *b.fixed))
        if a.fixed.get(name) != b.fixed.get(name)
    }
    return jobs | fixed


def names(a: Choice, b: Choice) -> tuple[str, str]:
    """What tells two choices apart: cards, counts, sellers, and what was changed in the job or its layout."""
    found = changes(a, b)
    of_a, of_b = ({name: pair[index] for name, pair in found.items()} for index in (0, 1))
    as_given = "" if a.rig != b.rig else _said(of_a, "the first settings")
    return _name(a, b, as_given), _name(b, a, _said(of_b, "the second settings"))


def _name(one: Choice, other: Choice, said: str) -> str:
    several = (one.rig.n_gpus, one.rig.n_nodes) != (other.rig.n_gpus, other.rig.n_nodes)
    rig, place = str(one.rig) if several else one.rig.gpu, _place(one, other)
    same = one.rig == other.rig and not place
    if said:
        return said if same else f"{rig}{place} with {said}"
    return f"{rig} at ${one.price.usd:.3f}" if same else f"{rig}{place}"


def _place(one: Choice, other: Choice) -> str:
    """Who sells it and how, where two offers differ in that."""
    mine, others = one.price.offer, other.price.offer
    if mine is None or others is None:
        return ""
    seller = f" at {mine.provider}" if mine.provider != others.provider else ""
    return seller + (f" ({mine.term})" if mine.term != others.term else "")


def _said(values: dict[str, Any], instead: str) -> str:
    """Changed settings in words; `instead` where there are too many of them."""
    if len(values) > MOST_NAMED:
        return instead
    shown = {name: f"{value:g}" if isinstance(value, float) else str(value) for name, value in values.items()}
    return ", ".join(f"{name} {'as is fastest' if values[name] is None else text}" for name, text in shown.items())
