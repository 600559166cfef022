"""perrun prices interruption: what it costs to be interrupted, and when on-demand is cheaper."""

from typing import Annotated, Any

import typer

from perrun.surfaces.cli.options import takes
from perrun.surfaces.cli.prices.shared import app, plain


@app.command()
@takes("output")
def interruption(
    output: dict[str, Any],
    hours: Annotated[float, typer.Option("--hours", metavar="X", help="hours of work")],
    price: Annotated[float, typer.Option("--price", metavar="USD", help="interruptible price of the rig, $/h")],
    on_demand: Annotated[float, typer.Option("--on-demand", metavar="USD", help="on-demand price of the rig, $/h")],
    published: Annotated[
        str | None, typer.Option("--class", metavar="SHARE", help="published monthly class, as '5-10%'")
    ] = None,
    mtbi: Annotated[
        float | None, typer.Option("--mtbi", metavar="HOURS", help="your own mean time between interruptions")
    ] = None,
    checkpoint: Annotated[float, typer.Option("--checkpoint", metavar="SECONDS", min=0, help="to save once")] = 60.0,
    restart: Annotated[
        float | None, typer.Option("--restart", metavar="SECONDS", min=0, help="to be back at work")
    ] = None,
    interval: Annotated[
        float | None, typer.Option("--interval", metavar="HOURS", help="between checkpoints; default: best")
    ] = None,
) -> None:
    """Interruptible or on-demand: expected cost, its spread by simulation, the hazard at which the verdict flips."""
    from perrun.prices import interruption as risk

    found = risk.report(
        hours,
        price,
        on_demand,
        interruption_class=published,
        mtbi_hours=mtbi,
        checkpoint_s=checkpoint,
        restart_s=restart,
        interval_hours=interval,
    )
    _show(found, hours, output)


def _show(found: Any, hours: float, output: dict[str, Any]) -> None:
    from perrun.surfaces.cli import show

    if output["json"]:
        show.as_json({**plain(found), "cheaper": found.cheaper})
        return
    names = ("hazard", "interrupted every", "save every", "Young", "expected h", "expected $", "times")
    rows = [
        (
            label,
            f"{one.mtbi_hours:,.0f} h",
            f"{60 * one.interval_hours:,.0f} min",
            f"{60 * one.young_hours:,.0f} min",
            f"{one.expected_hours:,.2f}",
            f"{one.usd:,.2f}",
            f"{one.interruptions:.2f}",
            " / ".join(f"{usd:,.2f}" for usd in one.quantile_usd.values()) or "never ends",
        )
        for label, one in (("quiet", found.low), ("middle", found.value), ("busy", found.high))
    ]
    title = f"{hours:g} h of work, hazard: {found.source}"
    if show.rows((*names, "$ at 10/50/90/99 %"), rows, output, title=title):
        flip = found.break_even_mtbi_hours
        said = "at any hazard" if flip == float("inf") else f"when interrupted oftener than every {flip:,.2g} h"
        print(f"on-demand ${found.on_demand_usd:,.2f}; cheaper: {found.cheaper}; on-demand is cheaper {said}")
