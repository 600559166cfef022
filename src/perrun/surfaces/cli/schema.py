"""perrun schema NAME: the JSON Schema of an answer (plan, estimate, fit, ...) or of a noun (job, offer, rig, ...)."""

from typing import Annotated

import typer

from perrun.surfaces.cli.options import application

app = application()


@app.command(help=__doc__)
def schema(
    name: Annotated[str, typer.Argument(help="plan, estimate, job, strategy, rig, offer, gpu, model, ...")],
) -> None:
    from perrun import verbs
    from perrun.surfaces.cli import show

    show.as_json(verbs.schema(name))
