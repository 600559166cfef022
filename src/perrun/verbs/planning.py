"""What can be bought, what fits, and what else may be asked of it."""

from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perrun.errors import InvalidInput, PerrunError
from perrun.terms import Estimate, FitAnswer, PlanAnswer, Rig, Varied
from perrun.verbs.asking import check_rig, checked, home, job, layout, offers

if TYPE_CHECKING:
    from perrun.grammar import Asked

MOST_VARIED = 200  # combinations of one question: each is a plan of its own


def plan(
    model: str,
    given: dict[str, Any] | None = None,
    strategy: dict[str, Any] | None = None,
    *,
    prices: str | Path | None = None,
    as_of: date | None = None,
    **wish: Any,
) -> PlanAnswer:
    """Rank what can be bought for a run; `wish` holds the fields of `perrun.planner.Wish` (budget_usd, gpus, ...)."""
    from perrun import planner

    asked, _ = job(model, given)
    known = offers(prices, as_of)
    if as_of is not None and not known:
        raise InvalidInput(f"no price was known on {as_of}", expected="a later day, YYYY-MM-DD")
    return planner.plan(asked, known, planner.Wish(fixed=checked(strategy), **wish), as_of)


def estimate(
    model: str, rig: Rig, given: dict[str, Any] | None = None, strategy: dict[str, Any] | None = None
) -> Estimate:
    """Memory, speed and fit of a job on one rig; with what to switch on when it does not fit."""
    from perrun import estimator, remedies

    check_rig(rig)
    asked, found = job(model, given)
    laid_out = layout(asked, rig, strategy)
    answer = estimator.answer(estimator.ask(asked, laid_out, rig, found))
    if answer.why_not is None:
        return answer
    return answer.model_copy(update={"remedies": remedies.remedies(asked, laid_out, rig, found)})


def fit(
    model: str,
    given: dict[str, Any] | None = None,
    strategy: dict[str, Any] | None = None,
    *,
    rigs: list[str] | None = None,
    prices: str | Path | None = None,
) -> FitAnswer:
    """Methods x rigs for a model: what fits, how tightly, and what a run costs there."""
    from perrun import matrix

    asked, found = job(model, given)
    chosen = [matrix.rig_of(text) for text in rigs] if rigs else None
    return matrix.fit(asked, found, offers(prices), chosen, fixed=checked(strategy))


def largest(
    what: str, model: str, rig: Rig, given: dict[str, Any] | None = None, strategy: dict[str, Any] | None = None
) -> int:
    """The largest seq_len, micro_batch or rank of the job that fits on the rig."""
    from perrun import remedies

    check_rig(rig)
    asked, found = job(model, given)
    return remedies.largest(what, asked, layout(asked, rig, strategy), rig, found)


def understood(text: str, *, prices: str | Path | None = None, as_of: date | None = None) -> "Asked":
    """What a short question was read as, where a provider that sells may be named. Raises as `ask`."""
    from perrun import grammar

    return grammar.parse(text, {offer.provider for offer in offers(prices, as_of)})


def ask(
    text: str, *, prices: str | Path | None = None, as_of: date | None = None, **wish: Any
) -> tuple[list[str], PlanAnswer]:
    """What a short question was read as, word by word, and the plan that answers it.

    wish: fields of `perrun.planner.Wish` beside those that the text says. Raises InvalidInput for words that are not
    understood, and what `plan` raises.
    """
    read = understood(text, prices=prices, as_of=as_of)
    answer = plan(read.model, read.job, read.strategy, prices=prices, as_of=as_of, **{**wish, **read.wish})
    return read.understood, answer


def alternatives(
    model: str, given: dict[str, Any] | None = None, strategy: dict[str, Any] | None = None, **more: Any
) -> list[Varied]:
    """Other jobs that the user may accept, each with its best plan; more: as for `plan`. Raises what `job` raises."""
    from perrun import alternatives as others

    asked, _ = job(model, given)
    changes = list(others.alternatives(asked))
    return [_varied(model, given, strategy, change, more, means) for change, means in changes]


def vary(
    model: str,
    axes: dict[str, list[Any]],
    given: dict[str, Any] | None = None,
    strategy: dict[str, Any] | None = None,
    **more: Any,
) -> list[Varied]:
    """The best plan for every combination of some settings (fields of Job, Strategy or Wish, several values each).

    more: as for `plan`. A combination without a plan says why. Raises InvalidInput for a name that is no setting and
    for more than 200 combinations.
    """
    from itertools import product
    from math import prod

    count = prod(len(values) for values in axes.values())
    if count > MOST_VARIED:
        raise InvalidInput(f"{count} combinations", expected=f"at most {MOST_VARIED}")
    combinations = (dict(zip(axes, values, strict=True)) for values in product(*axes.values()))
    return [_varied(model, given, strategy, change, more) for change in combinations]


def _varied(
    model: str,
    given: dict[str, Any] | None,
    strategy: dict[str, Any] | None,
    change: dict[str, Any],
    more: dict[str, Any],
    means: str = "",
) -> Varied:
    """The best plan after a change, whose fields go where they belong."""
    parts = {"job": dict(given or {}), "strategy": dict(strategy or {}), "wish": dict(more)}
    for name, value in change.items():
        parts[home(name)][name] = value
    wish: dict[str, Any] = parts["wish"] | {"limit": 1}
    try:
        found = plan(model, parts["job"], parts["strategy"], **wish)
    except PerrunError as why:
        return Varied(change=change, means=means, why_not=why.what)
    return Varied(change=change, means=means, plan=found.plans[0])
