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
CHUNK = 1 << 16  # candidates of one category that the laws take at once: their arrays stay in the processor's cache
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
class _Asked:
    """What is the same for all candidates. fixed: settings of a strategy that are not searched."""

    job: Job
    model: Model
    fixed: dict[str, Any]
    stack: Stack


@dataclass(frozen=True, slots=True)
class _Rigs:
    """Rigs that can run the job at all: usable memory [bytes], GPUs and nodes, and which of the cards they have.

    kernels: of attention, by card.
    """

    rigs: list[Rig]
    usable: Array
    sizes: Array
    kind: Array
    cards: Card
    kernels: list[tuple[str, ...]]

    def part(self, chosen: slice) -> "_Rigs":
        columns = (self.usable[chosen], self.sizes[chosen], self.kind[chosen])
        return _Rigs(self.rigs[chosen], *columns, self.cards, self.kernels)


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


def admitted(job: Job, model: Model, fixed: dict[str, Any], rig: Rig) -> tuple[Card, tuple[str, ...]]:
    """Card and kernels of attention of a rig that can run the job.

    Raises why it cannot: UnsupportedByGpu, MissingFact, InvalidInput, or what `facts` raise for names.
    """
    gpu = gpus.get(rig.gpu)
    attention = kernels(stacks.get(fixed.get("framework") or "trl"), gpu, fixed)
    estimator.check(job, _probe(fixed, rig.n_gpus > 1, attention), rig, gpu, model)
    card = speed.card(gpu, rig)
    rate(card, job.precision)
    estimator.usable_gib(gpu, rig)
    return card, attention


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
    kind: list[int] = []
    found: list[tuple[Card, tuple[str, ...]]] = []
    rejected: list[Rejected] = []
    known: dict[tuple[Any, ...], int] = {}
    for rig in rigs:
        key = (rig.gpu, rig.n_gpus, rig.n_nodes, rig.interconnect, rig.power_limit_w, rig.usable_gib is None)
        try:
            if key not in known:
                found.append(admitted(job, model, fixed, rig))
                known[key] = len(found) - 1
        except PerrunError as why:
            if isinstance(why, InvalidInput) and why.what.startswith(("seq_len", "lora_targets")):
                raise  # a mistake in the job itself, not a rig that cannot run it
            rejected.append(Rejected(rig=rig, reason=why.what))
            continue
        kept.append(rig)
        kind.append(known[key])
    usable = GIB * np.array([estimator.usable_gib(gpus.get(rig.gpu), rig) for rig in kept], dtype=float)
    sizes = np.array([(rig.n_gpus, rig.n_nodes) for rig in kept], dtype=float).reshape(-1, 2)
    cards = speed.stacked([card for card, _ in found])
    return _Rigs(kept, usable, sizes, np.array(kind, dtype=int), cards, [names for _, names in found]), rejected


def _groups(asked: _Asked, rigs: _Rigs) -> dict[Category, Array]:
    """The rigs that each category is tried on, as a mask.

    One GPU is searched as data parallel over a single rank where the stack has that: no law tells them apart. A fused
    loss is taken wherever there is one and the head is frozen: it is faster and smaller by every law (a trained head's
    gradient is made at once, which may be larger than few tokens' logits).
    """
    offered = layouts.of(asked.stack.framework)
    fused = asked.job.adapters and True in offered.fused_ce
    chosen = {"fused_ce": True, **asked.fixed} if fused else asked.fixed
    alone = {**chosen, "sharding": "ddp"} if "ddp" in offered.sharding else None
    several = rigs.sizes[:, 0] > 1
    found: dict[Category, Array] = {}
    for names in dict.fromkeys(rigs.kernels):
        able = np.array([own == names for own in rigs.kernels])[rigs.kind]
        for many in (False, True):
            here = able & (several == many)
            own = chosen if many or alone is None else alone
            for category in categories(asked.stack, own, many or alone is not None, names) if here.any() else ():
                found[category] = found[category] | here if category in found else here
    return found


def _tables(asked: _Asked, rigs: list[Rig]) -> list[Array]:
    """The splits of each rig as rows of numbers; rigs of one size share them."""
    allowed = limits(asked.job, asked.model.shape, asked.stack)
    known: dict[tuple[int, int], Array] = {}
    for rig in rigs:
        size = (rig.n_gpus, rig.n_nodes)
        if size not in known:
            rows = splits(asked.job, allowed, rig, asked.fixed)
            known[size] = np.array(rows, dtype=float).reshape(-1, len(Split._fields))
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


def _candidates(asked: _Asked, rigs: _Rigs, tables: list[Array]) -> Iterator[_Candidates]:
    """All strategies of all rigs, grouped by category."""
    rig, split = np.repeat(np.arange(len(tables)), [len(table) for table in tables]), np.concatenate(tables)
    for category, mask in _groups(asked, rigs).items():
        rows = slice(None) if mask.all() else mask[rig]
        if rig[rows].size:
            yield _Candidates(category, rig[rows], split[rows])


def _numbers(asked: _Asked, rigs: _Rigs, rows: _Candidates) -> Setting:
    """The Setting of one category, with arrays over its candidates."""
    plain = build(rows.category, UNSPLIT, asked.fixed, asked.stack)
    n_gpus, n_nodes = rigs.sizes[rows.rig].T
    split = {name: rows.split[:, i] for i, name in enumerate(Split._fields)}
    varied = {name: value for name, value in split.items() if name not in DEGREES or (value != 1).any()}
    return speed.as_padded(setting.of(asked.job, plain, rigs.rigs[0]).with_(n_gpus=n_gpus, n_nodes=n_nodes, **varied))


def _scored(asked: _Asked, rigs: _Rigs, groups: list[_Candidates]) -> _Scored:
    """What the laws say of all candidates."""
    model, stack, stored = asked.model, asked.stack, asked.model.stored_quantization
    parts: list[tuple[Any, ...]] = []
    for number, rows in enumerate(groups):
        numbers, kind = _numbers(asked, rigs, rows), rigs.kind[rows.rig]
        usable = rigs.usable[rows.rig]
        _, _, device, fits = estimator.memory_figures(model, numbers, stack, usable, stored, told=False)
        cards = speed.taken(rigs.cards, kind)
        lines = speed.time_lines(model.shape, numbers, cards, stack, stored_quantization=stored)
        rates = speed.tokens_per_s(numbers, sum(lines.values()))
        counts = np.array([1.0 if names[0] == rows.category.attention else APART for names in rigs.kernels])
        each = (number, rates, counts[kind] * rates, fits, device)
        parts.append((rows.rig, rows.split, *(np.broadcast_to(value, rows.rig.shape) for value in each)))
    return _Scored(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def best(
    job: Job, model: Model, rigs: list[Rig], fixed: dict[str, Any], min_fit: float
) -> tuple[list[Best], list[Rejected]]:
    """For each rig the fastest strategy whose probability to fit is at least `min_fit`.

    Among strategies within 1 % of the fastest the one that surely fits wins: speed is not known better than that. A
    kernel of attention that is not the stack's own must be over 5 % faster. Raises InvalidInput for a job that no rig
    could run.
    """
    asked = _Asked(job, model, fixed, stacks.get(fixed.get("framework") or "trl"))
    able, rejected = admit(job, model, fixed, rigs)
    tables = _tables(asked, able.rigs)
    found: list[Best] = []
    for chosen in _chunks(tables):
        part = able.part(chosen)
        groups = list(_candidates(asked, part, tables[chosen]))
        has = (part.usable / GIB).tolist()
        if groups:
            found += _picked(asked, part, groups, _scored(asked, part, groups), min_fit)
        else:
            found += [_none(rig, gib) for rig, gib in zip(part.rigs, has, strict=True)]
    return found, rejected


def _none(rig: Rig, has_gib: float) -> Best:
    """A rig whose GPUs cannot share the batch."""
    return Best(rig, None, 0.0, 0.0, float("nan"), has_gib)


def _first_of_each(rig: Array, rows: Array, *keys: Array) -> tuple[Array, Array]:
    """(rigs, the row of each that comes first by the keys, of which the last counts most)."""
    order = rows[np.lexsort((*keys, rig[rows]))]
    which, first = np.unique(rig[order], return_index=True)
    return which, order[first]


def _picked(asked: _Asked, rigs: _Rigs, groups: list[_Candidates], s: _Scored, min_fit: float) -> list[Best]:
    """The best candidate of each rig, and the one that needs least where none fits."""
    fitting = s.fits >= min_fit
    fastest = np.zeros(len(rigs.rigs))
    np.maximum.at(fastest, s.rig[fitting], s.pace[fitting])
    near = np.flatnonzero(fitting & (s.pace >= AS_FAST * fastest[s.rig]))
    hopeless = np.flatnonzero(fastest[s.rig] == 0)
    row = np.full(len(rigs.rigs), -1)
    for which, rows in (
        _first_of_each(s.rig, near, s.device[near], -s.fits[near].round(2)),
        _first_of_each(s.rig, hopeless, s.device[hopeless]),
    ):
        row[which] = rows
    strategies = _built(asked, rigs, groups, s, np.where(fastest > 0, row, -1))
    columns = (s.tokens_per_s[row] * (fastest > 0), s.fits[row], s.device[row] / GIB, rigs.usable / GIB)
    return [
        _none(rig, figures[-1]) if at < 0 else Best(rig, strategy, *figures)
        for rig, at, strategy, *figures in zip(
            rigs.rigs, row.tolist(), strategies, *(column.tolist() for column in columns), strict=True
        )
    ]


def _built(asked: _Asked, rigs: _Rigs, groups: list[_Candidates], s: _Scored, row: Array) -> list[Strategy | None]:
    """The strategy of each rig by its row, each built once; None where the row is below 0."""
    known: dict[tuple[Any, ...], Strategy] = {}
    found: list[Strategy | None] = []
    several = rigs.sizes[:, 0] > 1
    split_of: list[list[int]] = s.split[row].astype(int).tolist()
    group_of: list[int] = s.group[row].tolist()
    for at, group, many, split in zip(row.tolist(), group_of, several.tolist(), split_of, strict=True):
        key = (group, many, *split)
        if at >= 0 and key not in known:
            category = groups[group].category if many else replace(groups[group].category, sharding="none")
            known[key] = build(category, Split(*split), asked.fixed, asked.stack)
        found.append(known[key] if at >= 0 else None)
    return found
