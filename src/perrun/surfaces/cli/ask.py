"""perrun ask "70B qlora, 2000 examples of 2000 tokens, 2 epochs, under $20": a plan by what people type."""

from pathlib import Path
from typing import Annotated, Any

import typer

from perrun.surfaces.cli.options import Explain, application, takes
from perrun.surfaces.cli.wishes import SHOWN

app = application()


@app.command(help=__doc__)
@takes("output")
def ask(
    text: Annotated[list[str], typer.Argument(metavar="TEXT", help="model, method, data, limits, in any order")],
    output: dict[str, Any],
    limit: Annotated[
        int | None, typer.Option("--limit", metavar="N", help=f"plans shown (default {SHOWN}, 0 for all)", min=0)
    ] = None,
    prices: Annotated[Path | None, typer.Option("--prices", metavar="FILE", help="your own price file (CSV)")] = None,
    explained: Explain = False,
) -> None:
    from perrun import verbs
    from perrun.surfaces.cli import plan, show

    shown = SHOWN if limit is None else (limit or None)
    understood, answer = verbs.ask(" ".join(text), prices=prices, limit=shown)
    if output["json"]:
        show.as_json({"understood": understood, **answer.model_dump(mode="json")})
        return
    if not any(output.values()):
        print("Understood:")
        for line in understood:
            print(f"  {line}")
        print()
    plan.tell(answer, output, explained)
