"""Usual jobs in the terms of seed pages 000 and 001: a table of break-evens, and what to rent for which job and why."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from perrun import decide, rules
from perrun.decide import Choice, Market
from perrun.decide.breakeven import certainty, rate
from perrun.decide.sides import Laid, laid_out, side
from perrun.errors import InvalidInput, PerrunError
from perrun.facts import gpus
from perrun.planner.words import short
from perrun.prices import freshness
from perrun.terms import Decision, Job, JobsAnswer, Model, PricedJob, Rejected, Rig, Side

CARDS = ("A100-SXM4-80GB", "H100-SXM-80GB")
# The cards that the pages' decision table names.
CANDIDATES = ("RTX-4090-24GB", "A100-PCIe-80GB", "A100-SXM4-80GB", "H100-SXM-80GB", "H200-SXM-141GB")
# The pages state hours and no tokens; one of the five jobs says its rows, 10,000, which are taken for all.
DATA: dict[str, Any] = {"examples": 10_000, "tokens_per_example": 1024, "epochs": 3}
OWN = ("method", "objective", "precision")  # settings that every row has of its own

MakeJob = Callable[[str, dict[str, Any]], tuple[Job, Model]]  # `verbs.job`: fills in what is not said


def jobs(
    make: MakeJob, given: dict[str, Any], fixed: dict[str, Any], cards: tuple[str, str], market: Market
) -> JobsAnswer:
    """The five jobs on two cards. given: the data, and what else is the same for all.

    Raises InvalidInput for settings that each row has of its own, and what `decide.choice` raises for the cards.
    """
    _check(given)
    market.check()
    rows = [_priced(row, make, given, fixed, cards, market) for row in rules.data("usual_jobs")]
    first = next((row.compared for row in rows if row.compared), None)
    if first is None:
        raise InvalidInput(rows[0].why_not or "")  # a mistake in what is the same for all
    return JobsAnswer(jobs=rows, decisions=[], assumptions=_assumptions(given), prices_age=first.prices_age)


def decisions(
    make: MakeJob,
    given: dict[str, Any],
    fixed: dict[str, Any],
    cards: list[str],
    market: Market,
    hour_usd: float = 0.0,
) -> JobsAnswer:
    """What to rent for each kind of job, among `cards`. Raises as `jobs`."""
    _check(given)
    market.check()
    names = [gpus.get(card).id for card in cards]
    kinds = rules.data("usual_decisions")
    found = [_decided(row, make, given, fixed, names, market, hour_usd) for row in kinds]
    if not any(one.options for one in found):
        raise InvalidInput(found[0].why)
    days = [o.observed_at for o in market.offers if o.rig.gpu in names and market.provider in (None, o.provider)]
    return JobsAnswer(jobs=[], decisions=found, assumptions=_assumptions(given), prices_age=freshness.said(days))


def _check(given: dict[str, Any]) -> None:
    fixed = [key for key in OWN if key in given]
    if fixed:
        raise InvalidInput(f"{', '.join(fixed)}: each row has its own", expected="the data: examples, tokens, epochs")


def _assumptions(given: dict[str, Any]) -> list[str]:
    data = DATA | given
    total = data["examples"] * data["tokens_per_example"] * data["epochs"]
    return [
        f"{data['examples']:,} rows of {data['tokens_per_example']:,} tokens, {data['epochs']:g} epochs = "
        f"{total / 1e6:,.1f}M tokens in every row: the pages state hours and no tokens",
        "hours are predicted, each rig at its fastest layout that fits",
    ]


def _priced(
    row: dict[str, str],
    make: MakeJob,
    given: dict[str, Any],
    fixed: dict[str, Any],
    cards: tuple[str, str],
    market: Market,
) -> PricedJob:
    """One of the five jobs; where B alone has FP8, that is its row."""
    n_gpus = int(row["n_gpus"])
    at = replace(market, n_gpus=n_gpus)
    values = DATA | given | {"method": row["method"], "objective": row["objective"]}
    try:
        a, b = (
            decide.choice(card, *make(row["model"], values | {"precision": precision}), fixed, at)
            for card, precision in zip(cards, ("bf16-true", row["precision_b"]), strict=True)
        )
        found = decide.compare(a, b, more=False)
    except PerrunError as why:
        return PricedJob(what=row["what"], setup=row["setup"], why_not=why.what)
    return PricedJob(what=row["what"], setup=row["setup"], compared=found)


def _decided(
    row: dict[str, str],
    make: MakeJob,
    given: dict[str, Any],
    fixed: dict[str, Any],
    cards: list[str],
    market: Market,
    hour_usd: float,
) -> Decision:
    """Every card on one kind of job: those that hold it by what they cost, and why the others do not."""
    at = replace(market, n_gpus=int(row["n_gpus"]))
    layout = fixed | ({"micro_batch": int(row["micro_batch"])} if row["micro_batch"] else {})
    job, model = make(row["model"], _data(row, given))
    held: list[Laid] = []
    rejected: list[Rejected] = []
    for card in cards:
        try:
            held.append(laid_out(_fp8_where_it_can(decide.choice(card, job, model, layout, at))))
        except PerrunError as why:
            rejected.append(Rejected(rig=Rig(gpu=card, n_gpus=at.n_gpus), reason=why.what))
    sides = [side(one, one.choice.rig.gpu + _precision(one, job)) for one in held]
    ranked = sorted(sides, key=lambda one: one.usd + hour_usd * one.hours)
    laid = {one.name: found for one, found in zip(sides, held, strict=True)}
    rent = ranked[0].name if ranked else ""
    why = _why(ranked, laid, rejected, hour_usd)
    return Decision(what=row["what"], rent=rent, why=why, job=job, options=ranked, rejected=rejected)


def _data(row: dict[str, str], given: dict[str, Any]) -> dict[str, Any]:
    """The user's data in the rows of this kind of job: as many tokens in all."""
    values: dict[str, Any] = {**DATA, **given, "method": row["method"], "precision": row["precision"]}
    if not row["tokens_per_example"]:
        return values
    tokens = int(row["tokens_per_example"])
    rows = max(round(values["examples"] * values["tokens_per_example"] / tokens), 1)
    kept = {name: value for name, value in values.items() if name not in ("seq_len", "longest_example")}
    return {**kept, "tokens_per_example": tokens, "examples": rows}


def _fp8_where_it_can(choice: Choice) -> Choice:
    """A card without FP8 runs the job in bf16: that is what it competes with."""
    if choice.job.precision != "fp8" or gpus.get(choice.rig.gpu).fp8_dense_tflops:
        return choice
    return replace(choice, job=choice.job.model_copy(update={"precision": "bf16-true"}))


def _precision(one: Laid, asked: Job) -> str:
    mine = one.choice.job.precision
    return "" if mine == asked.precision else f" in {mine}"


def _why(ranked: list[Side], laid: dict[str, Laid], rejected: list[Rejected], hour_usd: float) -> str:
    """The reason, chosen by the numbers: what it costs, what the next and the fastest cost, what holds it not."""
    if not ranked:
        return "; ".join(_out(rejected))
    best, *others = ranked
    parts = [f"${short(best.usd)} in {short(best.hours)} h, bound by {best.bound_by}"]
    fastest = min(ranked, key=lambda one: one.hours)
    if others:
        parts.append(_against(best, others[0], laid, hour_usd))
    if fastest not in (best, *others[:1]):
        parts.append(_against(best, fastest, laid, hour_usd))
    if fastest is best and others:
        parts.append("it is also the fastest")
    return "; ".join([*parts, *_out(rejected)])


def _out(rejected: list[Rejected]) -> list[str]:
    """Cards that are no option, those of one reason together."""
    grouped: dict[str, list[str]] = {}
    for one in rejected:
        reason = one.reason.rsplit(": ", 1)[-1].replace(f" of {one.rig.gpu}", "")
        grouped.setdefault(reason, []).append(one.rig.gpu)
    return [f"not {', '.join(cards)}: {reason}" for reason, cards in grouped.items()]


def _against(best: Side, other: Side, laid: dict[str, Laid], hour_usd: float) -> str:
    """One option against the best, as `compare` has it."""
    found = decide.compared(laid[best.name].choice.job, best, other, decide.spread(laid[other.name]))
    times = f"{other.name} is {found.speedup:.2f}x as fast at {rate(other) / rate(best):.2f}x the price"
    more = found.usd_b - found.usd_a
    dearer = f"${short(abs(more))} {'more' if more >= 0 else 'less'}"
    sure = certainty(max(found.probability_b_cheaper, 1 - found.probability_b_cheaper))
    if hour_usd:
        return f"{times}: {dearer}, {short(abs(found.hours_saved))} h {'less' if found.hours_saved > 0 else 'more'}"
    saves = f", {short(found.hours_saved)} h less" if found.hours_saved > 0 else ""
    return f"{times}: {dearer}{saves} ({sure})"
