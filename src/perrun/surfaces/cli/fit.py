"""perrun fit MODEL: which methods fit on which rigs, how tightly, and what a run costs there."""

from typing import Annotated, Any

import typer

from perrun.surfaces.cli.options import application, by_flag, refuse, takes

app = application()
# The columns of --csv: fields of a FitCell, one row a cell.
FIGURES = (
    "rig.gpu",
    "rig.n_gpus",
    "rig.n_nodes",
    "method",
    "mark",
    "needs_gib",
    "has_gib",
    "headroom_gib",
    "fits_probability",
    "usd_per_hour",
    "usd_per_run",
    "sold_gpus",
    "why_not",
)
MARKS = {"yes": "✓", "tight": "tight", "no": "✗"}


@app.command(help=__doc__)
@takes("job", "strategy", "output")
def fit(
    model: Annotated[str, typer.Argument(help="Hugging Face id, or a config.json or its folder")],
    job: dict[str, Any],
    strategy: dict[str, Any],
    output: dict[str, Any],
    rig: Annotated[list[str] | None, typer.Option("--rig", help="a rig, as in '8x H100 SXM'; may be repeated")] = None,
    prices: Annotated[str | None, typer.Option("--prices", help="your own price file (CSV)")] = None,
    rules: Annotated[str | None, typer.Option("--rules", help="a published rule set instead of our model")] = None,
) -> None:
    from perrun import verbs
    from perrun.surfaces.cli import show

    if rules is not None:
        from perrun.surfaces.cli.plan import by_rules

        own = {**by_flag("strategy", strategy), "--rig": rig, "--prices": prices}
        refuse("--rules", own, "a published rule counts as its page does")
        by_rules(rules, model, job, output)
        return
    found = verbs.fit(model, job, strategy, rigs=rig, prices=prices)
    if output["json"]:
        show.as_json(found)
        return
    if output["csv"]:
        show.fields(FIGURES, found.cells)
        return
    rigs = list(dict.fromkeys(cell.rig for cell in found.cells))
    by = {(cell.rig, cell.method): cell for cell in found.cells}
    table = [[str(r), _price(by[r, found.methods[0]]), *(_cell(by[r, m]) for m in found.methods)] for r in rigs]
    title = f"{model}, GiB needed of one GPU / there (headroom), $ per run"
    if show.rows(("rig", "$/h", *found.methods), table, output, title):
        print("✓ fits, tight may fit, ✗ does not; the fastest strategy that fits, judged per GPU and never pooled")
        if any(cell.sold_gpus for cell in found.cells):
            print("(of n GPUs): so many are sold together and billed whole, the others stay idle")
        if found.prices_age:
            print(found.prices_age)


def _price(cell: Any) -> str:
    if cell.usd_per_hour is None:
        return ""
    return f"{cell.usd_per_hour:.2f}" + (f" (of {cell.sold_gpus} GPUs)" if cell.sold_gpus else "")


def _cell(cell: Any) -> str:
    if cell.needs_gib is None:
        return f"{MARKS['no']} {cell.why_not}"
    cost = "" if cell.usd_per_run is None else f" ${cell.usd_per_run:,.2f}"
    return f"{MARKS[cell.mark]} {cell.needs_gib:.0f}/{cell.has_gib:.0f} ({cell.headroom_gib:+.0f}){cost}"
