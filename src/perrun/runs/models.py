"""Models as measured rows name them: copies, quantised checkpoints and benchmark configurations.

models.csv beside this file says of such a name either which model of the facts has the same matrices (same_as) or
what its config.json says (config), each with its source. Any other name is asked of the facts.
"""

import csv
import json
from functools import cache
from importlib import resources

from perrun.errors import UnknownName
from perrun.facts import hub
from perrun.facts import models as facts
from perrun.terms import Model


@cache
def _rows() -> dict[str, dict[str, str]]:
    text = resources.files("perrun.runs").joinpath("models.csv").read_text(encoding="utf-8")
    return {row["name"]: row for row in csv.DictReader(text.splitlines())}


@cache
def get(name: str) -> Model:
    """The model that a row means. Raises UnknownName or UnsupportedModel."""
    if not name:
        raise UnknownName("the model is not stated")
    row = _rows().get(name)
    if row is None:
        return facts.get(name)
    if row["same_as"]:
        return get(row["same_as"]).model_copy(update={"id": name})
    return hub.from_config(json.loads(row["config"]), name).model_copy(update={"source": row["source"]})
