"""Any model by name or path: the table of known models, a config.json on disk, or the hub."""

import difflib
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from perrun.errors import AmbiguousName, InvalidInput, UnknownName
from perrun.facts import fetch, tables
from perrun.facts.hub import from_config
from perrun.facts.rows import config_of
from perrun.terms import Model

# What `only` allows beside the table; None: any name means whatever it can mean.
_GIVEN: ContextVar[Mapping[str, Model] | None] = ContextVar("given_models", default=None)


def rows() -> tuple[dict[str, str], ...]:
    """The rows of models.csv as text, for listings: nothing is built."""
    return tables.read("models")


@cache
def _by_id() -> dict[str, dict[str, str]]:
    return {row["id"]: row for row in rows()}


@cache
def known(id: str) -> Model:
    """The model of one row. Raises UnknownName when there is no such row.

    Where the row's published count includes the router's bias buffers (stored, never trained), so does the shape.
    """
    row = _by_id().get(id)
    if row is None:
        raise _unknown(id)
    model = from_config(config_of(row), id)
    update: dict[str, Any] = {"gated": row["gated"] == "yes", "license": row["license"], "source": row["source"]}
    if row["router_bias_buffers"]:
        params = model.shape.final_params + int(row["router_bias_buffers"])
        update["shape"] = replace(model.shape, final_params=params)
    return model.model_copy(update=update)


def ids() -> tuple[str, ...]:
    """Ids of all models in the table, in its order."""
    return tuple(_by_id())


def _tail(id: str) -> str:
    return id.rsplit("/", 1)[-1].lower()


def _nearest(name: str) -> list[str]:
    """Known ids that look most like a name, by whole id or by what follows the owner."""
    lowered = {id.lower(): id for id in _by_id()}
    tails = {_tail(id): id for id in _by_id()}
    hits = difflib.get_close_matches(_tail(name), tails, n=3, cutoff=0.6)
    hits_whole = difflib.get_close_matches(name.lower(), lowered, n=3, cutoff=0.6)
    found = [tails[hit] for hit in hits] + [lowered[hit] for hit in hits_whole]
    return list(dict.fromkeys(found))[:3]


def _unknown(name: str) -> UnknownName:
    near = _nearest(name)
    return UnknownName(
        f"model {name!r} is not known",
        expected="a Hugging Face id (owner/name), or the path of a config.json or its folder",
        hint=f"did you mean {', '.join(near)}?" if near else "perrun models lists those that are known offline",
    )


def _resolve(name: str) -> str | None:
    """The known id that a name means: exactly, in any case, or as the end of one id only; None when none.

    Raises AmbiguousName when several ids end so.
    """
    if name in _by_id():
        return name
    lowered = name.lower()
    hits = [id for id in _by_id() if id.lower() == lowered] or [id for id in _by_id() if _tail(id) == lowered]
    if len(hits) > 1:
        raise AmbiguousName(
            f"{len(hits)} known models are called {name!r}", candidates=hits, expected=f"one of {', '.join(hits)}"
        )
    return hits[0] if hits else None


def _local(name: str) -> Path | None:
    """The path that a name means; None when it means none. InvalidInput when it is spelled as a path but missing."""
    path = Path(name).expanduser()
    if path.is_file() or (path / "config.json").is_file():
        return path
    if name.endswith(".json") or name.startswith((".", "/", "~")) or path.is_dir():
        if path.is_dir() and fetch.is_hub_id(name):
            return None
        what = "holds no config.json" if path.is_dir() else "does not exist"
        raise InvalidInput(f"{name} {what}", expected="a config.json, or a folder that holds one")
    return None


@contextmanager
def only(given: Mapping[str, Model]) -> Generator[None]:
    """Inside, a name means one of `given` or a row of the table, never a file or a request to the hub.

    For servers: what a client sends as a name reaches neither this machine's disk nor its network.
    """
    token = _GIVEN.set(given)
    try:
        yield
    finally:
        _GIVEN.reset(token)


def _offline(name: str, given: Mapping[str, Model]) -> Model:
    if name in given:
        return given[name]
    id = _resolve(name)
    if id is None:
        near = _nearest(name)
        raise UnknownName(
            f"model {name!r} is not known",
            expected="a known id, or the object of its config.json",
            hint=f"did you mean {', '.join(near)}?" if near else "the list of models has every known id",
        )
    return known(id)


def get(name: str) -> Model:
    """A model by the path of its config.json (file or folder), by a known id or the end of one, or by its hub id.

    Known ids need no network. Raises UnknownName (suggesting the nearest), AmbiguousName (listing the candidates),
    Unavailable (gated or out of reach, with the way out), UnsupportedModel (no causal language model) and
    InvalidInput (a broken config.json, naming the key). Inside `only`, neither paths nor the hub are asked.
    """
    given = _GIVEN.get()
    if given is not None:
        return _offline(name, given)
    path = _local(name)
    if path is not None:
        return from_config(fetch.read(path), name)
    id = _resolve(name)
    if id is not None:
        return known(id)
    if not fetch.is_hub_id(name):
        raise _unknown(name)
    config, source = fetch.fetch(name, _nearest(name))
    model = from_config(config, name)
    return model.model_copy(update={"source": model.source.replace("config.json", source, 1)})
