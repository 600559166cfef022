"""perrun calibrate [FILE ...]: fit the laws' few constants on measured runs; writes calibration.csv."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from perrun.surfaces.cli.options import application, takes

app = application()


@app.command(help=__doc__)
@takes("output")
def calibrate(
    output: dict[str, Any],
    files: Annotated[
        list[Path] | None, typer.Argument(help="CSV of measured runs (runs/SCHEMA.md); default: runs/")
    ] = None,
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="where calibration.csv and memory_calibration.csv go")
    ] = Path(),
) -> None:
    from rich.console import Console

    from perrun import verbs
    from perrun.surfaces.cli import show

    with Console(stderr=True).status("reading runs") as status:

        def tell(text: str) -> None:
            status.update(text)
            if not sys.stderr.isatty():
                print(text, file=sys.stderr)

        found = verbs.calibrate(files, out, tell)
    if output["json"]:
        show.as_json({name: [row.model_dump() for row in rows] for name, rows in found.items()})
        return
    for name, rows in found.items():
        table = [
            (row.parameter, f"{row.value:.5g}", f"{row.standard_error:.3g}" if row.standard_error else "", row.n)
            for row in rows
        ]
        title = f"{name}.csv, fitted on runs with hash {rows[0].fitted_on}"
        show.rows(("parameter", "value", "standard error", "n"), table, output, title)
