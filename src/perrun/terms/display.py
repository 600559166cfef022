"""Nouns as rows: for data frames, and as HTML for notebooks. A cell holds one figure: lists within are left out."""

from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING, Any, cast

from pydantic import BaseModel

from perrun.errors import InvalidInput, Unavailable

if TYPE_CHECKING:
    from perrun.terms.nouns import Noun

LIBRARIES = ("pandas", "polars")
MOST_ROWS = 50  # of a table in a notebook


def flat(noun: BaseModel) -> dict[str, Any]:
    """Fields by their dotted names: 'offer.rig.gpu', 'estimate.memory.device_gib'."""
    found: dict[str, Any] = {}
    for name in type(noun).model_fields:
        _flatten(name, getattr(noun, name), found)
    return found


def _flatten(name: str, value: Any, found: dict[str, Any]) -> None:
    if isinstance(value, BaseModel):
        for inner, cell in flat(value).items():
            found[f"{name}.{inner}"] = cell
    elif isinstance(value, Mapping):
        for key, cell in cast("Mapping[str, Any]", value).items():
            _flatten(f"{name}.{key}", cell, found)
    elif not isinstance(value, list | tuple):
        found[name] = value


def rows(noun: "Noun") -> list[dict[str, Any]]:
    """One row per entry of what an answer lists (plans, cells), or one row of any other noun."""
    listed = type(noun).LISTED
    return [flat(one) for one in getattr(noun, listed)] if listed else [flat(noun)]


def frame(noun: "Noun", library: str | None = None) -> Any:
    """The rows as a data frame of pandas or polars. Raises Unavailable without either, InvalidInput for another."""
    if library not in (None, *LIBRARIES):
        raise InvalidInput(f"no data frames of {library!r}", expected=", ".join(LIBRARIES))
    for name in (library,) if library else LIBRARIES:
        try:
            module: Any = __import__(name)
        except ImportError:
            continue
        found = rows(noun)
        return module.DataFrame(found) if name == "pandas" else module.DataFrame(found, infer_schema_length=None)
    raise Unavailable(f"{library or 'neither pandas nor polars'} is not installed", hint="pip install pandas")


def html(noun: "Noun") -> str:
    """The verdict, where there is one, and a table: of what an answer lists, or of each field with its value."""
    verdict = getattr(noun, "verdict", "")
    said = f"<p>{escape(verdict)}</p>" if verdict else ""
    columns = type(noun).COLUMNS
    if not columns:
        cells = [[name, _said(value)] for name, value in flat(noun).items() if value not in (None, "")]
        return said + _table(("field", "value"), cells)
    found = rows(noun)
    more = f"<p>and {len(found) - MOST_ROWS} more</p>" if len(found) > MOST_ROWS else ""
    cells = [[_said(row.get(name)) for name in columns] for row in found[:MOST_ROWS]]
    return said + _table(columns, cells) + more


def _said(value: Any) -> str:
    return "" if value is None else f"{value:,.4g}" if isinstance(value, float) else str(value)


def _table(columns: tuple[str, ...], cells: list[list[str]]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in cells)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
