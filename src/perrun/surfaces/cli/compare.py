"""perrun compare A B MODEL: two rigs, offers or settings on one job; --jobs, --decisions, --methods: tables of such."""

from typing import Annotated, Any

import typer

from perrun.surfaces.cli.options import Explain, application, refuse, takes

app = application()


@app.command(help=__doc__)
@takes("job", "strategy", "output")
def compare(
    job: dict[str, Any],
    strategy: dict[str, Any],
    output: dict[str, Any],
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="A B MODEL", help="a card, '8x H100 SXM', or '8x H100 SXM at lambda', twice; a model"),
    ] = None,
    against: Annotated[
        list[str] | None,
        typer.Option("--against", metavar="NAME=VALUE", help="a setting that is different on B; may be repeated"),
    ] = None,
    jobs: Annotated[bool, typer.Option("--jobs", help="five usual jobs on A and B; what to rent for which")] = False,
    decisions: Annotated[bool, typer.Option("--decisions", help="what you do, what to rent, why")] = False,
    methods: Annotated[bool, typer.Option("--methods", help="QLoRA, LoRA and full of one MODEL")] = False,
    rules: Annotated[
        str | None, typer.Option("--rules", metavar="NAME", help="the same table as a published page counts")
    ] = None,
    n_gpus: Annotated[int, typer.Option("--n-gpus", metavar="N", help="GPUs of a side that has no count", min=1)] = 1,
    n_nodes: Annotated[int, typer.Option("--n-nodes", metavar="N", help="machines of each side", min=1)] = 1,
    price_a: Annotated[float | None, typer.Option("--price-a", metavar="X", help="dollars per GPU-hour of A")] = None,
    price_b: Annotated[float | None, typer.Option("--price-b", metavar="X", help="dollars per GPU-hour of B")] = None,
    hours_a: Annotated[float | None, typer.Option("--hours-a", metavar="X", help="your own hours on A")] = None,
    hours_b: Annotated[float | None, typer.Option("--hours-b", metavar="X", help="your own hours on B")] = None,
    hour_usd: Annotated[
        float, typer.Option("--hour-is-worth", metavar="X", help="dollars that an hour of waiting costs you", min=0)
    ] = 0.0,
    provider: Annotated[
        str | None, typer.Option("--provider", metavar="NAME", help="buy both there, whole bill")
    ] = None,
    term: Annotated[str, typer.Option("--term", metavar="WORD", help="on-demand, interruptible, ...")] = "on-demand",
    prices: Annotated[str | None, typer.Option("--prices", metavar="FILE", help="your own price file (CSV)")] = None,
    explained: Explain = False,
) -> None:
    bought: dict[str, Any] = {"provider": provider, "term": term, "prices": prices}
    typed: dict[str, Any] = {"price_a": price_a, "price_b": price_b}
    own: dict[str, Any] = {"hours_a": hours_a, "hours_b": hours_b, "against": _changes(against) if against else None}
    mode = _mode({"jobs": jobs, "decisions": decisions, "methods": methods}, rules)
    if mode is not None:
        more = {**typed, **own, "n_gpus": n_gpus - 1, "n_nodes": n_nodes - 1, "hour_is_worth": hour_usd}
        _table(mode, rules, names or [], job, strategy, output, bought, more)
        return
    from perrun import verbs
    from perrun.surfaces.cli import compared

    a, b, model = _named(names or [], 3, "A B MODEL")
    counts: dict[str, Any] = {"n_gpus": n_gpus, "n_nodes": n_nodes, "hour_usd": hour_usd}
    compared.tell(verbs.compare(model, a, b, job, strategy, **counts, **typed, **own, **bought), output, explained)


def _table(
    mode: str,
    rules: str | None,
    names: list[str],
    job: dict[str, Any],
    strategy: dict[str, Any],
    output: dict[str, Any],
    bought: dict[str, Any],
    more: dict[str, Any],
) -> None:
    """One of the tables, by our model or by a published page."""
    from perrun import verbs
    from perrun.surfaces.cli import compared

    if rules is not None:
        from perrun import rules as published
        from perrun.surfaces.cli.rules import show_table

        show_table(published.table(rules, mode), output)
        return
    allowed = {"jobs": ("price_a", "price_b"), "decisions": ("hour_is_worth",), "methods": ()}[mode]
    idle = {f"--{name.replace('_', '-')}": value for name, value in more.items() if name not in allowed}
    if mode == "methods":
        idle["--term"] = bought.pop("term") != "on-demand"
    refuse(f"--{mode}", idle, "the table has no use for it")
    if mode == "methods":
        (model,) = _named(names, 1, "MODEL")
        compared.tell_methods(verbs.methods(model, job, strategy, **bought), output)
        return
    decided = {"hour_usd": more["hour_is_worth"], **bought}
    if mode == "decisions":
        compared.tell_decisions(verbs.decisions(names or None, job, strategy, **decided), output)
        return
    a, b = _named(names, 2, "two cards") if names else (None, None)
    found = verbs.jobs(a, b, job, strategy, price_a=more["price_a"], price_b=more["price_b"], **bought)
    compared.tell_jobs(found, output)


def _mode(chosen: dict[str, bool], rules: str | None) -> str | None:
    """Which table is asked for, if one is. Raises InvalidInput for two of them, and for rules without one."""
    from perrun.errors import InvalidInput

    asked = [name for name, one in chosen.items() if one]
    if len(asked) > 1:
        raise InvalidInput(f"--{' and --'.join(asked)} at once", expected="one table")
    if rules is not None and not asked:
        raise InvalidInput("--rules without a table", expected="--jobs, --decisions or --methods")
    return asked[0] if asked else None


def _named(names: list[str], count: int, said: str) -> list[str]:
    from perrun.errors import InvalidInput

    if len(names) != count:
        raise InvalidInput(f"{len(names)} names to compare", expected=f"{said}; or --jobs, --decisions, --methods")
    return names


def _changes(texts: list[str]) -> dict[str, Any]:
    """'method=full' and 'rank=64' as values by field. Raises InvalidInput for what is no setting, or two values."""
    from perrun.errors import InvalidInput
    from perrun.surfaces.cli.options import JOB, STRATEGY
    from perrun.surfaces.cli.vary import axes

    found = axes(texts, "--against", (*JOB, *STRATEGY))
    several = [name for name, values in found.items() if len(values) > 1]
    if several:
        raise InvalidInput(f"--against {several[0]} has several values", expected="one")
    return {name: values[0] for name, values in found.items()}
