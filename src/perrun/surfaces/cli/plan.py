"""perrun plan MODEL: rank what can be bought for a run."""

from pathlib import Path
from typing import Annotated, Any

import typer

from perrun.surfaces.cli import wishes
from perrun.surfaces.cli.options import Explain, application, by_flag, refuse, takes
from perrun.surfaces.cli.wishes import SHOWN

app = application()
COLUMNS = (
    "rig",
    "provider",
    "term",
    "$/h",
    "price of",
    "GiB needed/there",
    "fits",
    "tokens/s (range)",
    "hours",
    "$ per run (range)",
    "$/M tokens",
)
# The columns of --csv: fields of a Plan, each named by its last word.
FIGURES = (
    "offer.rig.gpu",
    "offer.rig.n_gpus",
    "offer.rig.n_nodes",
    "used_gpus",
    "offer.provider",
    "offer.instance",
    "offer.region",
    "offer.term",
    "offer.usd_per_hour",
    "offer.observed_at",
    "estimate.memory.device_gib",
    "estimate.memory.low_gib",
    "estimate.memory.high_gib",
    "estimate.fits_probability",
    "estimate.tokens_per_s",
    "estimate.tokens_per_s_low",
    "estimate.tokens_per_s_high",
    "hours",
    "hours_low",
    "hours_high",
    "usd",
    "usd_low",
    "usd_high",
    "usd_per_million_tokens",
    "usd_with_waiting",
    "risk_probability",
)


@app.command(help=__doc__)
@takes("job", "strategy", "wish", "output", "config")
def plan(
    model: Annotated[str, typer.Argument(metavar="[MODEL]", help="Hugging Face id, or a config.json or its folder")],
    job: dict[str, Any],
    strategy: dict[str, Any],
    wish: dict[str, Any],
    output: dict[str, Any],
    limit: Annotated[
        int | None, typer.Option("--limit", metavar="N", min=0, help=f"plans shown (default {SHOWN}, 0 for all)")
    ] = None,
    prices: Annotated[str | None, typer.Option("--prices", metavar="FILE", help="your own price file (CSV)")] = None,
    as_of: Annotated[
        str | None, typer.Option("--as-of", metavar="DAY", help="prices as known on that day, YYYY-MM-DD")
    ] = None,
    rules: Annotated[
        str | None, typer.Option("--rules", metavar="NAME", help="a published rule set instead of our model")
    ] = None,
    varied: Annotated[
        list[str] | None,
        typer.Option("--vary", metavar="NAME=A,B", help="the best plan for each value: seq_len=1024,2048 rank=8,16"),
    ] = None,
    svg: Annotated[Path | None, typer.Option("--svg", metavar="FILE", help="the chart of --vary as a picture")] = None,
    others: Annotated[bool, typer.Option("--alternatives", help="other jobs, with what each changes")] = False,
    explained: Explain = False,
) -> None:
    from perrun import verbs
    from perrun.errors import InvalidInput, NothingFits

    of_plans = {"--limit": limit, "--alternatives": others, "--explain": explained, "--pareto": wish.get("front")}
    if rules is not None:
        own = {**by_flag("strategy", strategy), **by_flag("wish", wish), **of_plans}
        own |= {"--prices": prices, "--as-of": as_of, "--vary": varied, "--svg": svg}
        refuse("--rules", own, "a published rule counts as its page does")
        by_rules(rules, model, job, output)
        return
    asked: dict[str, Any] = {**wishes.wish(wish, limit), "prices": prices, "as_of": wishes.day(as_of)}
    if svg is not None and not varied:
        raise InvalidInput("--svg draws what --vary varies", expected="--vary NAME=A,B")
    if varied:
        refuse("--vary", of_plans, "it tells the best plan of each value")
        from perrun.surfaces.cli import vary

        axes = vary.axes(varied)
        found = verbs.vary(model, axes, job, strategy, **asked)
        vary.tell(found, output, svg, f"{model}: best plan by {', '.join(axes)}")
        return
    try:
        answer = verbs.plan(model, job, strategy, **asked)
    except NothingFits:
        if not any(output.values()):
            _tell_alternatives(verbs.alternatives(model, job, strategy, **asked))
        raise
    if others:
        answer = answer.model_copy(update={"alternatives": verbs.alternatives(model, job, strategy, **asked)})
    tell(answer, output, explained)


def _tell_alternatives(found: list[Any]) -> None:
    from perrun.surfaces.cli import vary

    vary.tell_alternatives(found)


def by_rules(name: str, model: str, given: dict[str, Any], output: dict[str, Any]) -> None:
    from perrun import rules, verbs
    from perrun.surfaces.cli.rules import show_table

    job, found = verbs.job(model, given)
    show_table(rules.plan(name, model, found.total_params, job.tokens), output)


def row(plan_: Any) -> list[str]:
    """One plan as the cells of its row."""
    from perrun.planner import rig_said

    offer, found = plan_.offer, plan_.estimate
    has = found.memory.device_gib
    return [
        rig_said(plan_),
        offer.provider,
        offer.term,
        f"{offer.usd_per_hour:.2f}",
        offer.observed_at.isoformat(),
        f"{has:.1f}/{_usable(offer.rig):.1f}",
        f"{found.fits_probability:.0%}",
        f"{found.tokens_per_s:,.0f} ({found.tokens_per_s_low:,.0f}-{found.tokens_per_s_high:,.0f})",
        f"{plan_.hours:.2f}",
        f"{plan_.usd:,.2f} ({plan_.usd_low:,.2f}-{plan_.usd_high:,.2f})",
        f"{plan_.usd_per_million_tokens:.3f}",
    ]


def _usable(rig: Any) -> float:
    from perrun import estimator
    from perrun.facts import gpus

    return estimator.usable_gib(gpus.get(rig.gpu), rig)


def tell(answer: Any, output: dict[str, Any], explained: bool) -> None:
    """Prints a plan in the form that was asked for."""
    from perrun.surfaces.cli import explain, show

    if output["json"]:
        show.as_json(answer)
        return
    if output["csv"]:
        show.fields(FIGURES, answer.plans)
        return
    if not show.rows(COLUMNS, [row(one) for one in answer.plans], output):
        return
    print(answer.verdict)
    if answer.experiments:
        print(_experiments(answer.experiments))
    if answer.plans and answer.plans[0].risk:
        print(f"First row: {answer.plans[0].risk}.")
    print("\nRests on:")
    for line in answer.assumptions:
        print(f"  {line}")
    print(f"  prices as seen on the dates above, newest {answer.prices_as_of}; 90 % range of memory, 80 % of speed")
    print(f"  {answer.prices_age}")
    _rejected(answer.rejected)
    if answer.alternatives:
        _tell_alternatives(answer.alternatives)
    if explained and answer.plans:
        explain.plan(answer.plans[0])


def _experiments(found: Any) -> str:
    return (
        f"{found.runs} runs through the first: ${found.usd:,.2f}, {found.hours:,.2f} h of training, "
        f"{found.days:,.1f} days on the calendar."
    )


def _rejected(rejected: list[Any]) -> None:
    if not rejected:
        return
    print("\nRejected:")
    for reason, rigs in _by_reason(rejected).items():
        print(f"  {', '.join(rigs)}: {reason}")


def _by_reason(rejected: list[Any]) -> dict[str, list[str]]:
    grouped: dict[str, list[str]] = {}
    for one in rejected:
        grouped.setdefault(one.reason, []).append(str(one.rig))
    return grouped
