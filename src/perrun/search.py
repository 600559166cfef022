"""The vectorised search: the best strategy for each rig, all candidates of one category in one call of the laws."""

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from perrun import estimator, setting, speed
from perrun.errors import InvalidInput, PerrunError
from perrun.facts import gpus, stacks
from perrun.facts.stacks import Stack
from perrun.setting import Setting
from perrun.speed.card import rate
from perrun.strategies import Category, build, categories, micro_batches, ranks_per_copy
from perrun.terms import Job, Model, Rejected, Rig, Strategy
from perrun.units import GIB

Array = npt.NDArray[Any]


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
    """Rigs that can run the job at all, as columns."""

    rigs: list[Rig]
    usable: Array
    cards: list[Any]


@dataclass(frozen=True, slots=True)
class _Candidates:
    """Rows of one category: index of the rig, micro batch and accumulation."""

    category: Category
    rig: Array
    micro: Array
    accum: Array


def admitted(job: Job, model: Model, fixed: dict[str, Any], rig: Rig) -> tuple[float, Any]:
    """(usable GiB, card) of a rig that can run the job. Raises why it cannot: UnsupportedByGpu, MissingFact,
    InvalidInput, or what `facts` raise for names."""
    stack = stacks.get(fixed.get("framework") or "trl")
    gpu = gpus.get(rig.gpu)
    sharding = fixed.get("sharding") or ("ddp" if rig.n_gpus > 1 else "none")
    probe = build(Category("full", False, sharding), 1, 1, fixed, stack)
    estimator.check(job, probe, rig, gpu, model)
    card = speed.card(gpu, rig)
    rate(card, job.precision)
    return estimator.usable_gib(gpu, rig), card


def admit(job: Job, model: Model, fixed: dict[str, Any], rigs: list[Rig]) -> tuple[_Rigs, list[Rejected]]:
    """Rigs that can run the job, and the rest with the reason. Raises InvalidInput for a mistake in the job itself."""
    kept: list[Rig] = []
    usable: list[float] = []
    cards: list[Any] = []
    rejected: list[Rejected] = []
    for rig in rigs:
        try:
            has, card = admitted(job, model, fixed, rig)
        except PerrunError as why:
            if isinstance(why, InvalidInput) and why.what.startswith(("seq_len", "lora_targets")):
                raise  # a mistake in the job itself, not a rig that cannot run it
            rejected.append(Rejected(rig=rig, reason=why.what))
            continue
        kept.append(rig)
        usable.append(has * GIB)
        cards.append(card)
    return _Rigs(kept, np.array(usable), cards), rejected


def _candidates(job: Job, rigs: _Rigs, fixed: dict[str, Any], framework: str) -> list[_Candidates]:
    """All strategies of all rigs, grouped by category; rigs of one GPU and of several have their own categories."""
    ranks = ranks_per_copy(fixed)
    found: list[_Candidates] = []
    for several in (False, True):
        rows = [
            (index, micro, accum)
            for index, rig in enumerate(rigs.rigs)
            if (rig.n_gpus > 1) == several
            for micro, accum in micro_batches(job, rig.n_gpus // ranks, fixed.get("micro_batch"))
        ]
        if rows:
            columns = [np.array(column) for column in zip(*rows, strict=True)]
            found += [_Candidates(category, *columns) for category in categories(fixed, framework, several)]
    return found


def _columns(cards: list[Any]) -> dict[str, Any]:
    """The cards' numbers as arrays by field, what is no number as it is in the first."""
    rows = {field.name: [getattr(card, field.name) for card in cards] for field in fields(cards[0])} if cards else {}
    return {name: np.array(row) if isinstance(row[0], (int, float)) else row[0] for name, row in rows.items()}


def _cards_at(kind: Any, columns: dict[str, Any], index: Array) -> Any:
    """One Card whose numbers are arrays over candidates."""
    return kind(**{name: value[index] if isinstance(value, np.ndarray) else value for name, value in columns.items()})


def numbers(job: Job, rigs: list[Rig], rows: _Candidates, fixed: dict[str, Any], stack: Stack) -> Setting:
    """The Setting of one category, with arrays over its candidates."""
    plain = build(rows.category, 1, 1, fixed, stack)
    n_gpus = np.array([rig.n_gpus for rig in rigs], dtype=float)[rows.rig]
    n_nodes = np.array([rig.n_nodes for rig in rigs], dtype=float)[rows.rig]
    asked = setting.of(job, plain, rigs[0]).with_(
        micro_batch=rows.micro.astype(float), grad_accum=rows.accum.astype(float), n_gpus=n_gpus, n_nodes=n_nodes
    )
    return speed.as_padded(asked)


def best(
    job: Job, model: Model, rigs: list[Rig], fixed: dict[str, Any], min_fit: float, calibration: Any = None
) -> tuple[list[Best], list[Rejected]]:
    """For each rig the fastest strategy whose probability to fit is at least `min_fit`.

    Among strategies within 1 % of the fastest the one that surely fits wins: speed is not known better than that.
    Raises InvalidInput for a job that no rig could run.
    """
    stack = stacks.get(fixed.get("framework") or "trl")
    admitted, rejected = admit(job, model, fixed, rigs)
    groups = _candidates(job, admitted, fixed, stack.framework)
    columns: dict[str, list[Array]] = {
        name: [] for name in ("rig", "speed", "fits", "needs", "micro", "accum", "group")
    }
    cards = _columns(admitted.cards)
    for number, rows in enumerate(groups):
        asked = numbers(job, admitted.rigs, rows, fixed, stack)
        peak, _, device, fits = estimator.memory_figures(
            model, asked, stack, admitted.usable[rows.rig], model.stored_quantization
        )
        del peak
        card = _cards_at(speed.Card, cards, rows.rig)
        lines = speed.time_lines(model.shape, asked, card, stack, calibration, model.stored_quantization)
        size = rows.rig.size
        for name, value in (
            ("rig", rows.rig),
            ("speed", speed.tokens_per_s(asked, sum(lines.values()))),
            ("fits", fits),
            ("needs", device / GIB),
            ("micro", rows.micro),
            ("accum", rows.accum),
            ("group", np.full(size, number)),
        ):
            columns[name].append(np.broadcast_to(value, (size,)))
    table = {name: np.concatenate(parts) if parts else np.array([]) for name, parts in columns.items()}
    return _pick(admitted, groups, table, fixed, min_fit, stack), rejected


def _pick(
    rigs: _Rigs, groups: list[_Candidates], table: dict[str, Array], fixed: dict[str, Any], min_fit: float, stack: Stack
) -> list[Best]:
    found: list[Best] = []
    for index, rig in enumerate(rigs.rigs):
        rows = np.flatnonzero(table["rig"] == index)
        has = float(rigs.usable[index]) / GIB
        if not rows.size:
            found.append(Best(rig, None, 0.0, 0.0, float("nan"), has))
            continue
        fitting = rows[table["fits"][rows] >= min_fit]
        if not fitting.size:
            row = rows[np.argmin(table["needs"][rows])]
            found.append(Best(rig, None, 0.0, float(table["fits"][row]), float(table["needs"][row]), has))
            continue
        fast = fitting[table["speed"][fitting] >= 0.99 * np.max(table["speed"][fitting])]
        row = fast[np.lexsort((table["needs"][fast], -table["fits"][fast].round(2)))[0]]
        category = groups[int(table["group"][row])].category
        found.append(
            Best(
                rig,
                build(category, int(table["micro"][row]), int(table["accum"][row]), fixed, stack),
                float(table["speed"][row]),
                float(table["fits"][row]),
                float(table["needs"][row]),
                has,
            )
        )
    return found
