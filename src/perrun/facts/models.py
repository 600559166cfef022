"""The table of known models, and the main entry to any model by name or path."""

import difflib
from functools import cache

from perrun.errors import AmbiguousName, UnknownName
from perrun.facts import tables
from perrun.facts.hub import from_config
from perrun.facts.rows import config_of
from perrun.terms import Model


def rows() -> tuple[dict[str, str], ...]:
    """The rows of models.csv as they are, for listings."""
    return tables.read("models")


@cache
def _index() -> dict[str, dict[str, str]]:
    return {row["id"]: row for row in rows()}


def _find(name: str) -> dict[str, str]:
    """The row of an id, or of the one id that ends so (any case).

    Raises AmbiguousName when several end so and UnknownName when none does.
    """
    known = _index()
    if name in known:
        return known[name]
    lowered = name.lower()
    hits = [i for i in known if i.lower() == lowered or i.lower().rsplit("/", 1)[-1] == lowered]
    if len(hits) > 1:
        raise AmbiguousName(f"model {name!r} is the end of several ids", candidates=hits, expected=", ".join(hits))
    if not hits:
        near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
        raise UnknownName(f"model {name!r} is not known", hint=f"did you mean {', '.join(near)}?" if near else "")
    return known[hits[0]]


def get(name: str) -> Model:
    """A model by its Hugging Face id."""
    row = _find(name)
    model = from_config(config_of(row), row["id"])
    return model.model_copy(update={"gated": row["gated"] == "yes", "license": row["license"], "source": row["source"]})
