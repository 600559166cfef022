"""What people type for one side: '8x H100 SXM', '16x H100 SXM on 2 nodes', 'A100 SXM4 at lambda (interruptible)'."""

import math
import re
from dataclasses import dataclass, field
from typing import Any, get_args

from perrun import matrix
from perrun.decide.sides import Choice, Price, market_price, offer_price
from perrun.errors import InvalidInput, UnknownName
from perrun.terms import Job, Model, Offer, Rig, Term

SIDE = re.compile(
    rf"(?P<rig>.+?)(?:\s+at\s+(?P<provider>[\w.-]+))?(?:[\s,]+\(?(?P<term>{'|'.join(get_args(Term))})\)?)?",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Market:
    """Where prices come from unless a side says it: the offers, how they are bought, and of whom (None: the median).

    n_gpus, n_nodes: of a side that has no count of its own; typed: dollars per GPU-hour by card.
    """

    offers: list[Offer]
    term: str = "on-demand"
    provider: str | None = None
    n_gpus: int = 1
    n_nodes: int = 1
    typed: dict[str, float] = field(default_factory=dict[str, float])

    def check(self) -> None:
        """Raises InvalidInput for a price that is none, UnknownName for a provider without an offer."""
        for gpu, usd in self.typed.items():
            _above_zero(gpu, usd)
        if self.provider is not None:
            _seller(self.provider, self)


def choice(
    text: str,
    job: Job,
    model: Model,
    fixed: dict[str, Any],
    market: Market,
    usd: float | None = None,
    hours: float | None = None,
) -> Choice:
    """One side. usd: per GPU-hour as the user types it; hours: of training as the user measured them.

    Raises InvalidInput for what contradicts itself, UnknownName for a provider, MissingFact for a price that nobody
    asks, and what `facts.gpus.get` raises.
    """
    found = SIDE.fullmatch(text.strip())
    if found is None:
        raise InvalidInput("a side is empty", expected="a rig, as in '8x H100 SXM'")
    rig = _rig(found["rig"], market)
    if hours is not None and not 0 < hours < math.inf:
        raise InvalidInput(f"the hours on {rig} are {hours:g}", expected="hours above 0")
    own = market.typed.get(rig.gpu) if usd is None else usd
    price = _price(text, rig, found["provider"], (found["term"] or "").lower(), market, own)
    return Choice(job, model, rig, price, fixed, hours)


def _rig(text: str, market: Market) -> Rig:
    """The rig of a side, where it has no count of its own with that of the command."""
    said = matrix.RIG.fullmatch(text.strip())
    rig = matrix.rig_of(text)
    if said is None or said["n_gpus"] is None:
        return Rig(gpu=rig.gpu, n_gpus=market.n_gpus, n_nodes=market.n_nodes)
    if market.n_gpus not in (1, rig.n_gpus):
        raise InvalidInput(f"{text} and --n-gpus {market.n_gpus} contradict each other", expected="one of them")
    return rig if market.n_nodes == 1 else Rig(gpu=rig.gpu, n_gpus=rig.n_gpus, n_nodes=market.n_nodes)


def _price(text: str, rig: Rig, provider: str | None, term: str, market: Market, usd: float | None) -> Price:
    if usd is None:
        seller = provider or market.provider
        if seller is None:
            return market_price(rig.gpu, market.offers, term or market.term)
        return offer_price(rig, market.offers, term or market.term, _seller(seller, market))
    if provider or term:
        raise InvalidInput(f"{text!r} and a price of its own contradict each other", expected="one of them")
    _above_zero(rig.gpu, usd)
    return Price(usd, "as typed")


def _above_zero(gpu: str, usd: float) -> None:
    if not 0 < usd < math.inf:
        raise InvalidInput(f"the price of {gpu} is {usd:g}", expected="dollars per GPU-hour, above 0")


def _seller(name: str, market: Market) -> str:
    known = {offer.provider.lower(): offer.provider for offer in market.offers}
    if name.lower() not in known:
        raise UnknownName(f"no offer of provider {name!r}", expected=", ".join(sorted(known.values())))
    return known[name.lower()]
