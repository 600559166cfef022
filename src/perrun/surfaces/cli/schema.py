"""perrun schema NAME: the JSON Schema of an answer (plan, estimate) or of a noun (job, offer, rig, ...)."""

from typing import Annotated

import typer

from perrun.surfaces.cli.options import application

app = application()


@app.command(help=__doc__)
def schema(
    name: Annotated[str, typer.Argument(help="plan, estimate, job, strategy, rig, offer, gpu, model, ...")],
) -> None:
    from perrun import terms
    from perrun.errors import UnknownName
    from perrun.surfaces.cli import show

    nouns = {
        "plan": terms.PlanAnswer,
        "estimate": terms.Estimate,
        "job": terms.Job,
        "strategy": terms.Strategy,
        "rig": terms.Rig,
        "offer": terms.Offer,
        "gpu": terms.GPU,
        "run": terms.Run,
        "calibration": terms.Calibration,
        "source": terms.Source,
    }
    if name.lower() not in nouns:
        raise UnknownName(f"no schema for {name!r}", expected=", ".join(nouns))
    show.as_json(nouns[name.lower()].model_json_schema())
