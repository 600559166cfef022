"""The vectorised search: the best strategy for each rig, all candidates of one category in one call of the laws.

An Offer contains a Rig, so strategies are searched once per distinct rig, however many offers sell it. Rigs are taken
in chunks, so that memory does not grow with their number.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from perrun import estimator, setting, speed
from perrun.errors import InvalidInput, PerrunError
from perrun.facts import gpus, layouts, stacks
from perrun.facts.stacks import Stack
from perrun.setting import Setting
from perrun.speed.card import Card, rate
from perrun.strategies import DEGREES, Category, Split, build, categories, degrees, kernels, limits, splits
from perrun.terms import Job, Model, Rejected, Rig, Strategy
from perrun.units import GIB

Array = npt.NDArray[Any]
CHUNK = 1 << 17  # candidates of one category that the laws take at once: their arrays stay in the processor's cache
AS_FAST = 0.99  # of the fastest: speed is not known better than that
APART = 0.95  # what a kernel that must be installed beside the stack counts for: it is taken where it gains over 5 %
UNSPLIT = Split(1, 1, 1, 1, 1, 1)


@dataclass(frozen=True, slots=True)
class Best:
    """What the search found for one rig: the fastest strategy that fits, or how far the nearest one is from fitting."""

    rig: Rig
    strategy: Strategy | None
    tokens_per_s: float
    fits: float
    needs_gib: float
    has_gib: float


@dataclass(frozen=True, slots=True)
class _Rigs:
    """Rigs that can run the job at all, with their usable memory [bytes], cards and kernels of attention."""

    rigs: list[Rig]
    usable: Array
    cards: list[Card]
    kernels: list[tuple[str, ...]]

    def part(self, chosen: slice) -> "_Rigs":
        return _Rigs(self.rigs[chosen], self.usable[chosen], self.cards[chosen], self.kernels[chosen])


@dataclass(frozen=True, slots=True)
class _Candidates:
    """Rows of one category: index of the rig, and the numbers of the split."""

    category: Category
    rig: Array
    split: Array


@dataclass(frozen=True, slots=True)
class _Scored:
    """Candidates of all categories with what the laws say of them; group: index of the category."""

    rig: Array
    split: Array
    group: Array
    tokens_per_s: Array
    pace: Array  # the same as it counts when strategies are compared
    fits: Array
    device: Array


def admitted(job: Job, model: Model, fixed: dict[str, Any], rig: Rig) -> tuple[float, Card, tuple[str, ...]]:
    """(usable GiB, card, kernels of attention) of a rig that can run the job.

    Raises why it cannot: UnsupportedByGpu, MissingFact, InvalidInput, or what `facts` raise for names.
    """
    gpu = gpus.get(rig.gpu)
    attention = kernels(stacks.get(fixed.get("framework") or "trl"), gpu, fixed)
    estimator.check(job, _probe(fixed, rig.n_gpus > 1, attention), rig, gpu, model)
    card = speed.card(gpu, rig)
    rate(card, job.precision)
    return estimator.usable_gib(gpu, rig), card, attention


def _probe(fixed: dict[str, Any], several: bool, attention: tuple[str, ...]) -> Strategy:
    """Some strategy of the space, to be checked against a card. Raises InvalidInput where there is none."""
    stack = stacks.get(fixed.get("framework") or "trl")
    possible = categories(stack, fixed, several, attention)
    if not possible:
        raise InvalidInput(f"{stack.label} runs on one GPU", hint="--max-gpus 1, or another --framework")
    return build(possible[0], UNSPLIT._replace(**degrees(fixed)), fixed, stack)


def admit(job: Job, model: Model, fixed: dict[str, Any], rigs: list[Rig]) -> tuple[_Rigs, list[Rejected]]:
    """Rigs that can run the job, and the rest with the reason. Raises InvalidInput for a mistake in the job itself."""
    kept: list[Rig] = []
    found: list[tuple[float, Card, tuple[str, ...]]] = []
    rejected: list[Rejected] = []
    for rig in rigs:
        try:
            found.append(admitted(job, model, fixed, rig))
        except PerrunError as why:
            if isinstance(why, InvalidInput) and why.what.startswith(("seq_len", "lora_targets")):
                raise  # a mistake in the job itself, not a rig that cannot run it
            rejected.append(Rejected(rig=rig, reason=why.what))
            continue
        kept.append(rig)
    usable, cards, attention = zip(*found, strict=True) if found else ((), (), ())
    return _Rigs(kept, GIB * np.array(usable, dtype=float), list(cards), list(attention)), rejected


def _groups(job: Job, rigs: _Rigs, fixed: dict[str, Any], stack: Stack) -> dict[Category, list[int]]:
    """Indices of the rigs that each category is tried on.

    One GPU is searched as data parallel over a single rank where the stack has that: no law tells them apart. A fused
    loss is taken wherever there is one and the head is frozen: it is faster and smaller by every law (a trained head's
    gradient is made at once, which may be larger than few tokens' logits).
    """
    offered = layouts.of(stack.framework)
    chosen = {"fused_ce": True, **fixed} if job.adapters and True in offered.fused_ce else fixed
    alone = {"sharding": "ddp"} if "ddp" in offered.sharding else {}
    tried: dict[tuple[bool, tuple[str, ...]], list[Category]] = {}
    found: dict[Category, list[int]] = {}
    for index, (rig, attention) in enumerate(zip(rigs.rigs, rigs.kernels, strict=True)):
        key = (rig.n_gpus > 1, attention)
        if key not in tried:
            own = chosen if key[0] else {**chosen, **alone}
            tried[key] = categories(stack, own, key[0] or bool(alone), attention)
        for category in tried[key]:
            found.setdefault(category, []).append(index)
    return found


def _tables(job: Job, model: Model, rigs: list[Rig], fixed: dict[str, Any], stack: Stack) -> list[Array]:
    """The splits of each rig as rows of numbers; rigs of one size share them."""
    allowed = limits(job, model.shape, stack)
    known: dict[tuple[int, int], Array] = {}
    for rig in rigs:
        size = (rig.n_gpus, rig.n_nodes)
        if size not in known:
            known[size] = np.array(splits(job, allowed, rig, fixed), dtype=np.int64).reshape(-1, len(Split._fields))
    return [known[rig.n_gpus, rig.n_nodes] for rig in rigs]


def _chunks(tables: list[Array]) -> Iterator[slice]:
    """Runs of rigs that have no more than CHUNK splits together, but at least one rig."""
    start = size = 0
    for index, table in enumerate(tables):
        if index > start and size + len(table) > CHUNK:
            yield slice(start, index)
            start, size = index, 0
        size += len(table)
    if start < len(tables):
        yield slice(start, len(tables))


def _candidates(
    job: Job, rigs: _Rigs, tables: list[Array], fixed: dict[str, Any], stack: Stack
) -> Iterator[_Candidates]:
    """All strategies of all rigs, grouped by category."""
    for category, indices in _groups(job, rigs, fixed, stack).items():
        chosen = [tables[i] for i in indices]
        rows = np.repeat(indices, [len(table) for table in chosen])
        if rows.size:
            yield _Candidates(category, rows, np.concatenate(chosen))


def numbers(job: Job, rigs: list[Rig], rows: _Candidates, fixed: dict[str, Any], stack: Stack) -> Setting:
    """The Setting of one category, with arrays over its candidates."""
    plain = build(rows.category, UNSPLIT, fixed, stack)
    sizes = np.array([(rig.n_gpus, rig.n_nodes) for rig in rigs], dtype=float)[rows.rig]
    split = {name: rows.split[:, i].astype(float) for i, name in enumerate(Split._fields)}
    varied = {name: value for name, value in split.items() if name not in DEGREES or (value != 1).any()}
    asked = setting.of(job, plain, rigs[0]).with_(n_gpus=sizes[:, 0], n_nodes=sizes[:, 1], **varied)
    return speed.as_padded(asked)


def _scored(
    job: Job, model: Model, rigs: _Rigs, groups: list[_Candidates], fixed: dict[str, Any], calibration: Any
) -> _Scored:
    """What the laws say of all candidates."""
    stack = stacks.get(fixed.get("framework") or "trl")
    cards = speed.stacked(rigs.cards)
    parts: list[tuple[Any, ...]] = []
    for number, rows in enumerate(groups):
        asked = numbers(job, rigs.rigs, rows, fixed, stack)
        usable = rigs.usable[rows.rig]
        _, _, device, fits = estimator.memory_figures(model, asked, stack, usable, model.stored_quantization)
        lines = speed.time_lines(
            model.shape, asked, speed.taken(cards, rows.rig), stack, calibration, model.stored_quantization
        )
        rates = speed.tokens_per_s(asked, sum(lines.values()))
        own = np.array([attention[0] == rows.category.attention for attention in rigs.kernels])[rows.rig]
        each = (number, rates, np.where(own, 1.0, APART) * rates, fits, device)
        parts.append((rows.rig, rows.split, *(np.broadcast_to(value, rows.rig.shape) for value in each)))
    return _Scored(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def best(
    job: Job, model: Model, rigs: list[Rig], fixed: dict[str, Any], min_fit: float, calibration: Any = None
) -> tuple[list[Best], list[Rejected]]:
    """For each rig the fastest strategy whose probability to fit is at least `min_fit`.

    Among strategies within 1 % of the fastest the one that surely fits wins: speed is not known better than that. A
    kernel of attention that is not the stack's own must be over 5 % faster. Raises InvalidInput for a job that no rig
    could run.
    """
    stack = stacks.get(fixed.get("framework") or "trl")
    able, rejected = admit(job, model, fixed, rigs)
    tables = _tables(job, model, able.rigs, fixed, stack)
    found: list[Best] = []
    for chosen in _chunks(tables):
        part = able.part(chosen)
        groups = list(_candidates(job, part, tables[chosen], fixed, stack))
        if groups:
            scored = _scored(job, model, part, groups, fixed, calibration)
            found += _picked(part, groups, scored, fixed, min_fit, stack)
        else:
            found += [_none(part, index) for index in range(len(part.rigs))]
    return found, rejected


def _none(rigs: _Rigs, index: int) -> Best:
    """A rig whose GPUs cannot share the batch."""
    return Best(rigs.rigs[index], None, 0.0, 0.0, float("nan"), float(rigs.usable[index]) / GIB)


def _first_of_each(rig: Array, rows: Array, *keys: Array) -> dict[int, int]:
    """Of each rig the row that comes first by the keys (the last key counts most)."""
    order = rows[np.lexsort((*keys, rig[rows]))]
    which, first = np.unique(rig[order], return_index=True)
    return {int(index): int(order[at]) for index, at in zip(which, first, strict=True)}


def _picked(
    rigs: _Rigs, groups: list[_Candidates], s: _Scored, fixed: dict[str, Any], min_fit: float, stack: Stack
) -> list[Best]:
    """The best candidate of each rig, and the one that needs least where none fits."""
    fitting = s.fits >= min_fit
    fastest = np.zeros(len(rigs.rigs))
    np.maximum.at(fastest, s.rig[fitting], s.pace[fitting])
    near = np.flatnonzero(fitting & (s.pace >= AS_FAST * fastest[s.rig]))
    rows = _first_of_each(s.rig, near, s.device[near], -s.fits[near].round(2))
    hopeless = np.flatnonzero(fastest[s.rig] == 0)
    least = _first_of_each(s.rig, hopeless, s.device[hopeless])
    known: dict[tuple[Any, ...], Strategy] = {}
    found: list[Best] = []
    for index, rig in enumerate(rigs.rigs):
        row = rows.get(index, least.get(index))
        if row is None:
            found.append(_none(rigs, index))
            continue
        strategy = None
        if index in rows:
            split = Split(*(int(number) for number in s.split[row]))
            key = (int(s.group[row]), rig.n_gpus > 1, split)
            if key not in known:
                category = groups[key[0]].category
                known[key] = build(category if key[1] else replace(category, sharding="none"), split, fixed, stack)
            strategy = known[key]
        speed_ = float(s.tokens_per_s[row]) if strategy else 0.0
        has = float(rigs.usable[index]) / GIB
        found.append(Best(rig, strategy, speed_, float(s.fits[row]), float(s.device[row]) / GIB, has))
    return found
