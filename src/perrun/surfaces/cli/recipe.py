"""perrun recipe MODEL --gpu G --target T: the files and the exact command of a training stack."""

from pathlib import Path
from typing import Annotated, Any

import typer

from perrun.surfaces.cli.options import application, by_flag, refuse, takes

app = application()


@app.command(help=__doc__)
@takes("job", "strategy", "config")
def recipe(
    model: Annotated[str, typer.Argument(metavar="[MODEL]", help="Hugging Face id, or a config.json or its folder")],
    job: dict[str, Any],
    strategy: dict[str, Any],
    target: Annotated[
        str,
        typer.Option("--target", metavar="NAME", help="trl, axolotl, llamafactory, unsloth, accelerate, deepspeed, "
                     "trainer, nemo-automodel"),
    ] = "trl",
    plan: Annotated[Path | None, typer.Option("--plan", metavar="FILE", help="what perrun plan --json printed")] = None,
    row: Annotated[int, typer.Option("--row", metavar="N", min=1, help="which of its plans")] = 1,
    gpu: Annotated[str | None, typer.Option("--gpu", metavar="CARD", help="the card")] = None,
    n_gpus: Annotated[int | None, typer.Option("--n-gpus", metavar="N", min=1, help="GPUs over all nodes")] = None,
    n_nodes: Annotated[int | None, typer.Option("--n-nodes", metavar="N", min=1, help="machines")] = None,
    data: Annotated[str | None, typer.Option("--rows", metavar="FILE|ID", help="rows: a file, or of the hub")] = None,
    steps: Annotated[int | None, typer.Option("--max-steps", metavar="N", min=1, help="end early")] = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="DIR", help="write the files there")] = None,
    replace: Annotated[bool, typer.Option("--force", help="write over files that say something else")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="the answer as JSON")] = False,
) -> None:  # fmt: skip
    from perrun import recipes, verbs
    from perrun.errors import InvalidInput
    from perrun.facts import gpus, models
    from perrun.recipes import making
    from perrun.surfaces.cli import show
    from perrun.terms import Rig

    if plan is not None:
        given = {"MODEL": model, "--gpu": gpu, "--n-gpus": n_gpus, "--n-nodes": n_nodes}
        refuse("--plan", {**given, **by_flag("job", job), **by_flag("strategy", strategy)}, "the plan says all of them")
        asked, laid_out, rig, _ = making.planned(plan, row)
        found = models.get(asked.model)
        made = recipes.emit(target, asked, laid_out, rig, found, data=data or recipes.DATA, steps=steps)
    elif gpu is None:
        raise InvalidInput("no card is named", expected="--gpu CARD, or --plan FILE")
    else:
        rig = Rig(gpu=gpus.get(gpu).id, n_gpus=n_gpus or 1, n_nodes=n_nodes or 1)
        made = verbs.recipe(model, rig, target, job, strategy, data=data, steps=steps)
    written = making.write(made.files, out, replace=replace) if out is not None else []
    if as_json:
        show.as_json(made)
        return
    tell(made, written)


def tell(made: Any, written: list[Path]) -> None:
    """The command, the files, and what was assumed, for people."""
    print(f"{made.install}\n{made.command}")
    for name, text in made.files.items():
        if not written:
            print(f"\n--- {name}\n{text}", end="")
    if written:
        print(f"\nwritten: {', '.join(str(path) for path in written)}")
    print("\nAssumed:")
    for line in made.assumptions:
        print(f"  {line}")
