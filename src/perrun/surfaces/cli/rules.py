"""perrun rules [NAME]: published rules of thumb, as their pages count, to the printed digit; --ours: by our model."""

from typing import Annotated, Any

import typer

from perrun.surfaces.cli.options import application, takes

app = application()


@app.command(help=__doc__)
@takes("output")
def rules(
    output: dict[str, Any],
    name: Annotated[str | None, typer.Argument(help="a rule set")] = None,
    table: Annotated[str | None, typer.Option("--table", metavar="WORD", help="which of its tables")] = None,
    ours: Annotated[bool, typer.Option("--ours", help="the same table by our model, at what is on offer")] = False,
    page_prices: Annotated[bool, typer.Option("--page-prices", help="with --ours: at the prices of the page")] = False,
    provider: Annotated[str | None, typer.Option("--provider", metavar="NAME", help="with --ours: its prices")] = None,
    prices: Annotated[
        str | None, typer.Option("--prices", metavar="FILE", help="with --ours: your own price file (CSV)")
    ] = None,
) -> None:
    from perrun import rules as published

    asked = {"--page-prices": page_prices, "--provider": provider, "--prices": prices}
    _check(name, table, ours, [flag for flag, value in asked.items() if value])
    if name is None:
        show_table(
            [
                {"rules": one.name, "tables": ", ".join(one.tables), "says": one.says, "source": one.source}
                for one in published.SETS.values()
            ],
            output,
        )
        return
    if not ours:
        show_table(published.table(name, table), output)
        return
    from perrun import verbs

    show_table(verbs.rules(name, table, page_prices=page_prices, provider=provider, prices=prices), output)


def _check(name: str | None, table: str | None, ours: bool, priced: list[str]) -> None:
    """Raises InvalidInput for flags that would be ignored, and for two sources of prices."""
    from perrun.errors import InvalidInput

    if name is None and (table or ours or priced):
        raise InvalidInput("no rule set is named", expected="perrun rules NAME, from perrun rules")
    if priced and not ours:
        raise InvalidInput(f"{priced[0]} without --ours", expected="the page's table has its own prices")
    if len(priced) > 1 and "--page-prices" in priced:
        raise InvalidInput(f"{' and '.join(priced)} at once", expected="one source of prices")


def show_table(rows: list[dict[str, Any]], output: dict[str, Any]) -> None:
    """Prints rows of equal keys in the form that the user asked for."""
    from perrun.surfaces.cli import show

    if output["json"]:
        show.as_json(rows)
        return
    show.rows(list(rows[0]) if rows else [], [list(row.values()) for row in rows], output)
