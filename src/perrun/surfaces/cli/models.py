"""perrun models [FILTER]: known models; any other by its config.json, its folder or its hub id."""

from typing import Annotated, Any

import typer

from perrun.surfaces.cli.options import application, takes

app = application()
COLUMNS = ("model", "family", "parameters", "active", "layers", "hidden", "vocabulary", "context")


@app.command(help=__doc__)
@takes("output")
def models(
    output: dict[str, Any], text: Annotated[str | None, typer.Argument(metavar="[FILTER]", help="part of an id")] = None
) -> None:
    from perrun.errors import UnknownName
    from perrun.facts import models as facts
    from perrun.surfaces.cli import show

    if text and (text.endswith(".json") or ("/" in text and not _hits(text))):
        found = facts.get(text)
        show.as_json(found) if output["json"] else show.rows(COLUMNS, [_of(found)], output)
        return
    rows = _hits(text or "")
    if not rows:
        raise UnknownName(f"no known model has {text!r} in its id", hint="pass a config.json to read any other")
    if output["json"]:
        show.as_json(rows)
        return
    show.rows(COLUMNS, [_row(row) for row in rows], output)


def _hits(text: str) -> list[dict[str, str]]:
    from perrun.facts import models as facts

    return [row for row in facts.rows() if text.lower() in row["id"].lower()]


def _of(model: Any) -> list[str]:
    shape = model.shape
    numbers = (shape.total_params, shape.active_params, shape.n_layers, shape.hidden_size, shape.vocab_size)
    return [model.id, model.model_type, *(f"{n:,}" for n in numbers), f"{model.max_position_embeddings or ''}"]


def _row(row: dict[str, str]) -> list[str]:
    counts = [f"{int(row[key]):,}" if row.get(key) else "" for key in ("total_params", "active_params")]
    return [
        row["id"],
        row["family"],
        *counts,
        row["num_layers"],
        row["hidden_size"],
        row["vocab_size"],
        row["max_position_embeddings"],
    ]
