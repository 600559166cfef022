"""What can be bought for a job: offers that pass the filters, clusters made of them, what a run through each takes."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from perrun import cost, overheads, search
from perrun.errors import InvalidInput
from perrun.planner.wish import Wish
from perrun.terms import Job, Model, Offer, Rig
from perrun.units import SECONDS_PER_HOUR

Array = npt.NDArray[np.float64]
# The floor of a market is what the cheapest host asked on that day, not something that can be bought: it is ranked
# only when asked for.
USUAL_TERMS = ("on-demand", "interruptible", "reserved", "prepaid-block", "owned")
CLUSTERED = ("on-demand", "reserved", "owned")  # nobody sells nodes that are interrupted together
LEAST_NODE = 8  # GPUs of a node that clusters are made of


@dataclass(frozen=True, slots=True)
class Market:
    """Offers whose rig can run the job, and what a run through each takes. risk: probability that it does not end as
    planned, because it does not fit or is interrupted.
    """

    offers: list[Offer]
    best: list[search.Best]
    rigs: list[Rig]
    hours: Array
    usd: Array
    fits: Array
    risk: Array

    def worth(self, wish: Wish) -> Array:
        """Dollars by which offers are ranked: the bill, and the waiting at what an hour of it is worth."""
        return self.usd + wish.hour_usd * self.hours


def wanted(offers: list[Offer], wish: Wish) -> list[Offer]:
    """Offers that pass the filters, with the user's own time between interruptions; checked by `check`."""
    found = [_own_mtbi(offer, wish) for offer in offers if _passes(offer, wish)]
    check(offers, found, wish)
    if wish.n_gpus is not None:
        return _holding(found, wish.n_gpus)
    return found + clusters(found, wish.max_gpus or 0)


def _passes(offer: Offer, wish: Wish) -> bool:
    return (
        (not wish.gpus or offer.rig.gpu in wish.gpus)
        and (not wish.providers or offer.provider in wish.providers)
        and (not wish.regions or offer.region in wish.regions)
        and offer.term in (wish.terms or USUAL_TERMS)
        and (wish.max_gpus is None or offer.rig.n_gpus <= wish.max_gpus)
    )


def check(offers: list[Offer], found: list[Offer], wish: Wish) -> None:
    """Raises InvalidInput for an empty price book, for a name that no offer bears, and for filters that exclude all."""
    if not offers:
        raise InvalidInput("the price book is empty", hint="perrun prices import FILE.csv, or leave --prices out")
    for name, chosen, known in (
        ("provider", wish.providers, {offer.provider for offer in offers}),
        ("region", wish.regions, {offer.region for offer in offers}),
        ("term", wish.terms, {offer.term for offer in offers}),
    ):
        strange = [one for one in chosen if one not in known]
        if strange:
            raise InvalidInput(f"no offer with {name} {', '.join(strange)}", expected=", ".join(sorted(known)))
    sold = {offer.rig.gpu for offer in offers}
    if wish.gpus and not sold & set(wish.gpus):  # one name may mean several cards, of which one on offer is enough
        raise InvalidInput(f"no offer with gpu {', '.join(wish.gpus)}", expected=", ".join(sorted(sold)))
    if not found:
        raise InvalidInput("no offer satisfies all filters at once", hint="leave one of them out")


def clusters(offers: list[Offer], most_gpus: int) -> list[Offer]:
    """2, 4, 8, ... nodes of one machine with at least 8 GPUs, billed whole, up to `most_gpus` GPUs.

    Whether a provider joins its nodes by a fast network is not in the prices: the note of the offer says so.
    """
    found: list[Offer] = []
    for offer in offers:
        if offer.term not in CLUSTERED or offer.rig.n_nodes > 1 or offer.rig.n_gpus < LEAST_NODE:
            continue
        nodes = 2
        while nodes * offer.rig.n_gpus <= most_gpus:
            found.append(_cluster(offer, nodes))
            nodes *= 2
    return found


def _cluster(offer: Offer, nodes: int) -> Offer:
    rig = offer.rig.model_copy(update={"n_gpus": nodes * offer.rig.n_gpus, "n_nodes": nodes})
    told = "nodes taken to be joined by InfiniBand: ask the provider"
    return offer.model_copy(
        update={
            "rig": rig,
            "usd_per_hour": nodes * offer.usd_per_hour,
            "note": f"{offer.note}; {told}" if offer.note else told,
        }
    )


def _own_mtbi(offer: Offer, wish: Wish) -> Offer:
    if wish.mtbi_hours is None or offer.term not in overheads.STOPS:
        return offer
    return offer.model_copy(update={"mtbi_hours": wish.mtbi_hours})


def _holding(offers: list[Offer], n_gpus: int) -> list[Offer]:
    """The smallest machines that hold so many GPUs. Raises InvalidInput when there is none."""
    found = cost.smallest_node(offers, n_gpus)
    if not found:
        largest = max(offer.rig.n_gpus for offer in offers)
        raise InvalidInput(
            f"no offer holds {n_gpus} GPUs", expected=f"at most {largest}", hint="--max-gpus makes clusters of nodes"
        )
    return found


def used(rig: Rig, wish: Wish) -> Rig:
    """The part of a machine that the job runs on."""
    if wish.n_gpus in (None, rig.n_gpus):
        return rig
    return rig.model_copy(update={"n_gpus": wish.n_gpus})


def market(job: Job, model: Model, offers: list[Offer], by_rig: dict[Rig, search.Best], wish: Wish) -> Market:
    """Offers whose rig is in `by_rig`, at the best strategy for it."""
    chosen = [offer for offer in offers if used(offer.rig, wish) in by_rig]
    rigs = [used(offer.rig, wish) for offer in chosen]
    best = [by_rig[rig] for rig in rigs]
    hours = job.tokens / np.array([one.tokens_per_s for one in best]) / SECONDS_PER_HOUR
    usd = cost.totals(hours, job, model, chosen, used_gpus=wish.n_gpus, keep_days=wish.keep_days)
    fits = np.array([one.fits for one in best])
    risk = 1.0 - fits * np.exp(-overheads.hazards(chosen) * hours)
    return Market(chosen, best, rigs, hours, usd, fits, risk)


def front(*columns: Any) -> npt.NDArray[np.bool_]:
    """Which rows no other row beats: as good in every column (less is better) and better in one.

    Rows sorted by the first columns are held against those kept so far: O(n x size of the front).
    """
    rows = np.column_stack(columns)
    order = np.lexsort(rows.T[::-1])
    kept = np.empty((0, rows.shape[1]))
    on = np.zeros(len(rows), dtype=bool)
    for i in order:
        as_good = (kept <= rows[i]).all(axis=1)
        if not (as_good & (kept < rows[i]).any(axis=1)).any():
            on[i] = True
            kept = np.vstack((kept, rows[i]))
    return on
