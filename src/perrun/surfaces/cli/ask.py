"""perrun ask "70B qlora, 2000 examples of 2000 tokens, 2 epochs, under $20": a plan by what people type."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from perrun.surfaces.cli import wishes
from perrun.surfaces.cli.options import Explain, application, as_command, takes
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

    asked = verbs.understood(" ".join(text), prices=prices)
    wish: dict[str, Any] = wishes.wish({}, limit) | asked.wish
    answer = verbs.plan(asked.model, asked.job, asked.strategy, prices=prices, **wish)
    same = as_command(asked)
    if output["json"]:
        plain = json.loads(answer.model_dump_json())  # where JSON has no word for infinity
        show.as_json({"understood": asked.understood, "command": same, **plain})
        return
    if not any(output.values()):
        print("Understood:")
        for line in asked.understood:
            print(f"  {line}")
        print(f"  as: {same}\n")
    plan.tell(answer, output, explained)
