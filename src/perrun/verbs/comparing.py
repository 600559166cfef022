"""One thing against another: rigs, offers, methods, and the tables of jobs and decisions."""

from datetime import date
from pathlib import Path
from typing import Any

from perrun.errors import InvalidInput
from perrun.terms import Comparison, JobsAnswer, MethodsAnswer
from perrun.verbs.asking import checked, home, job, offers


def compare(
    model: str,
    gpu_a: str,
    gpu_b: str,
    given: dict[str, Any] | None = None,
    strategy: dict[str, Any] | None = None,
    *,
    against: dict[str, Any] | None = None,
    n_gpus: int = 1,
    n_nodes: int = 1,
    price_a: float | None = None,
    price_b: float | None = None,
    hours_a: float | None = None,
    hours_b: float | None = None,
    hour_usd: float = 0.0,
    provider: str | None = None,
    term: str = "on-demand",
    prices: str | Path | None = None,
) -> Comparison:
    """The break-even of B over A on one job.

    gpu_a, gpu_b: a card, a rig ('8x H100 SXM'), or an offer ('8x H100 SXM at lambda'); against: settings of the job or
    its layout that are different on B. Prices per GPU-hour as typed, of one provider, or the market's median; hours of
    training as typed, or as predicted. hour_usd: what an hour of waiting is worth.
    """
    from perrun import decide

    if not 0 <= hour_usd < float("inf"):
        raise InvalidInput(f"an hour of waiting is worth ${hour_usd:g}", expected="0 or more")
    other = {"job": dict(given or {}), "strategy": dict(strategy or {})}
    for name, value in (against or {}).items():
        if home(name) == "wish":
            raise InvalidInput(f"{name} is no setting of a job or its layout", expected="method, seq_len, ...")
        other[home(name)][name] = value
    asked, found = job(model, given)
    on_b, _ = job(model, other["job"])
    market = decide.Market(offers(prices), term, provider, n_gpus, n_nodes)
    a = decide.choice(gpu_a, asked, found, checked(strategy), market, price_a, hours_a)
    b = decide.choice(gpu_b, on_b, found, checked(other["strategy"]), market, price_b, hours_b)
    return decide.compare(a, b, market.offers, hour_usd)


def jobs(
    a: str | None = None,
    b: str | None = None,
    given: dict[str, Any] | None = None,
    strategy: dict[str, Any] | None = None,
    *,
    price_a: float | None = None,
    price_b: float | None = None,
    provider: str | None = None,
    term: str = "on-demand",
    prices: str | Path | None = None,
) -> JobsAnswer:
    """Five usual jobs on two cards, an A100 and an H100 unless said, and what to rent for which job.

    given: the data.
    """
    from perrun import decide
    from perrun.decide import usual
    from perrun.facts import gpus

    cards = (gpus.get(a or usual.CARDS[0]).id, gpus.get(b or usual.CARDS[1]).id)
    typed = {card: usd for card, usd in zip(cards, (price_a, price_b), strict=True) if usd is not None}
    market = decide.Market(offers(prices), term, provider, typed=typed)
    found = usual.jobs(job, given or {}, checked(strategy), cards, market)
    kinds = usual.decisions(job, given or {}, checked(strategy), list(usual.CANDIDATES), market)
    return found.model_copy(update={"decisions": kinds.decisions})


def decisions(
    cards: list[str] | None = None,
    given: dict[str, Any] | None = None,
    strategy: dict[str, Any] | None = None,
    *,
    hour_usd: float = 0.0,
    provider: str | None = None,
    term: str = "on-demand",
    prices: str | Path | None = None,
) -> JobsAnswer:
    """What to rent for each kind of job, among some cards, and why. given: the data."""
    from perrun import decide
    from perrun.decide import usual

    market = decide.Market(offers(prices), term, provider)
    return usual.decisions(job, given or {}, checked(strategy), cards or list(usual.CANDIDATES), market, hour_usd)


def methods(
    model: str,
    given: dict[str, Any] | None = None,
    strategy: dict[str, Any] | None = None,
    *,
    provider: str | None = None,
    prices: str | Path | None = None,
) -> MethodsAnswer:
    """QLoRA, LoRA and full fine-tuning of a model: what each costs per hour of hardware and per run, over the first."""
    from perrun.decide import methods as compared

    asked, found = job(model, given)
    known = [offer for offer in offers(prices) if provider in (None, offer.provider)]
    return compared.methods(asked, found, known, checked(strategy))


def rules(
    name: str,
    table: str | None = None,
    *,
    page_prices: bool = False,
    provider: str | None = None,
    prices: str | Path | None = None,
) -> list[dict[str, Any]]:
    """A table of a published page once more by our model, at what is on offer, or at the page's own prices."""
    from perrun import rules as published
    from perrun.decide import pages

    if page_prices:
        return pages.table(name, table, job, published.offers(name, date.today()))
    known = [offer for offer in offers(prices) if provider in (None, offer.provider)]
    if not known:
        raise InvalidInput(f"no offer of provider {provider!r}", hint="perrun prices list")
    return pages.table(name, table, job, known)
