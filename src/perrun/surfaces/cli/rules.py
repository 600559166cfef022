"""perrun rules [NAME]: published rules of thumb, as their pages count, to the printed digit."""

from typing import Annotated, Any

import typer

from perrun.surfaces.cli.options import application, takes

app = application()


@app.command(help=__doc__)
@takes("output")
def rules(
    output: dict[str, Any],
    name: Annotated[str | None, typer.Argument(help="a rule set")] = None,
    table: Annotated[str | None, typer.Option("--table", help="which of its tables")] = None,
) -> None:
    from perrun import rules as published

    if name is not None:
        show_table(published.table(name, table), output)
        return
    show_table(
        [
            {"rules": one.name, "tables": ", ".join(one.tables), "says": one.says, "source": one.source}
            for one in published.SETS.values()
        ],
        output,
    )


def show_table(rows: list[dict[str, Any]], output: dict[str, Any]) -> None:
    """Prints rows of equal keys in the form that the user asked for."""
    from perrun.surfaces.cli import show

    if output["json"]:
        show.as_json(rows)
        return
    show.rows(list(rows[0]), [list(row.values()) for row in rows], output)
