"""What a change of a configuration does to memory, hours and dollars, on one kind of card at one price."""

from typing import Any

from pydantic import Field

from perrun import estimator
from perrun.decide.sides import Price, market_price
from perrun.terms import Estimate, Job, Model, Noun, Offer, Rig, Strategy
from perrun.units import SECONDS_PER_HOUR


class Setting(Noun):
    """One setting that differs."""

    name: str = Field(description="field of the job or of the strategy")
    old: Any = Field(description="before")
    new: Any = Field(description="after")
    changes_loss: bool = Field(description="a field of the job: the loss curve changes, not only bytes and seconds")


class Version(Noun):
    """One of the two configurations: what it asks for and what it takes."""

    rig: Rig = Field(description="what it runs on")
    job: Job = Field(description="what is trained")
    strategy: Strategy = Field(description="how it is laid out")
    estimate: Estimate = Field(description="memory and speed")
    hours: float = Field(description="of training [h]")
    usd: float = Field(description="training hours x price x GPUs [USD]")
    unread: list[str] = Field(default_factory=list[str], description="keys that perrun has no use for")


class Change(Noun):
    """The answer of `diff`."""

    usd_per_gpu_hour: float = Field(description="[USD]")
    price_of: str = Field(description="where the price comes from")
    old: Version = Field(description="before")
    new: Version = Field(description="after")
    settings: list[Setting] = Field(description="what differs")
    memory_gib: float = Field(description="new - old, of one GPU [GiB]")
    hours: float = Field(description="new - old [h]")
    usd: float = Field(description="new - old [USD]")
    verdict: str = Field(description="one line")
    notes: list[str] = Field(default_factory=list[str], description="what was assumed")


Laid = tuple[Job, Strategy, Rig, Model, list[str]]  # with the keys that were not read


def version(job: Job, strategy: Strategy, rig: Rig, model: Model, unread: list[str], price: float) -> Version:
    found = estimator.answer(estimator.ask(job, strategy, rig, model))
    hours = job.tokens / found.tokens_per_s / SECONDS_PER_HOUR
    usd = hours * price * rig.n_gpus
    return Version(rig=rig, job=job, strategy=strategy, estimate=found, hours=hours, usd=usd, unread=unread)


def change(
    old: Laid,
    new: Laid,
    offers: list[Offer],
    price: float | None = None,
    notes: list[str] | None = None,
) -> Change:
    """The difference of two versions on cards of one kind.

    price: typed [USD per GPU-hour]; None: the market's median on demand.

    Raises what the estimator raises, and MissingFact when nobody sells the card.
    """
    paid = Price(price, "as typed") if price is not None else market_price(new[2].gpu, offers)
    before, after = (version(*laid, paid.usd) for laid in (old, new))
    return Change(
        usd_per_gpu_hour=paid.usd,
        price_of=paid.source,
        old=before,
        new=after,
        settings=differences(before, after),
        memory_gib=after.estimate.memory.device_gib - before.estimate.memory.device_gib,
        hours=after.hours - before.hours,
        usd=after.usd - before.usd,
        verdict=verdict(before, after),
        notes=notes or [],
    )


def differences(old: Version, new: Version) -> list[Setting]:
    """Fields that differ, those of the job first."""
    found: list[Setting] = []
    if old.rig != new.rig:
        found.append(Setting(name="rig", old=str(old.rig), new=str(new.rig), changes_loss=False))
    for mine, (before, after) in ((True, (old.job, new.job)), (False, (old.strategy, new.strategy))):
        a, b = before.model_dump(), after.model_dump()
        found += [Setting(name=name, old=a[name], new=b[name], changes_loss=mine) for name in a if a[name] != b[name]]
    return found


def verdict(old: Version, new: Version) -> str:
    """One line: dollars, hours, memory, and whether it still fits."""
    if differences(old, new) == []:
        return "Nothing that costs memory, time or money changed."
    parts = [
        f"${abs(new.usd - old.usd):,.2f} {'more' if new.usd > old.usd else 'less'} a run",
        f"{abs(new.hours - old.hours):,.2f} h {'longer' if new.hours > old.hours else 'shorter'}",
    ]
    gib = new.estimate.memory.device_gib - old.estimate.memory.device_gib
    parts.append(f"{abs(gib):,.1f} GiB {'more' if gib > 0 else 'less'} a GPU")
    line = ", ".join(parts)
    if new.estimate.why_not and not old.estimate.why_not:
        return f"It no longer fits: {new.estimate.why_not}. ({line})"
    if old.estimate.why_not and not new.estimate.why_not:
        return f"Now it fits: {line}."
    return f"{line[0].upper()}{line[1:]}."
