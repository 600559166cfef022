"""The one shape of every refusal, and the status that goes with each kind."""

import json
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, Field
from starlette.responses import Response

from perrun.errors import InvalidInput, PerrunError
from perrun.surfaces.cli import complaints

STATUS = {
    "invalid_input": 422,
    "missing_fact": 422,
    "unsupported_model": 422,
    "unsupported_by_gpu": 422,
    "nothing_fits": 422,
    "unknown_name": 404,
    "ambiguous_name": 409,
    "unavailable": 503,
}
# Kinds that only a server has, by status.
OF_STATUS = {
    400: "malformed",
    401: "no_key",
    403: "forbidden",
    404: "not_found",
    405: "not_allowed",
    408: "too_slow",
    413: "too_large",
    500: "internal",
    503: "busy",
}
MOST_SAID = 1000  # characters of what a client sent are not all sent back


class ErrorSaid(BaseModel):
    """Every refusal: the kind, what was wrong, what is allowed, and a hint."""

    error: str = Field(description="kind: " + ", ".join(dict.fromkeys((*STATUS, *OF_STATUS.values()))))
    what: str = Field(description="what was wrong")
    expected: str = Field(description="what is allowed; may be empty")
    hint: str = Field(description="the way out; may be empty")


def response(status: int, said: dict[str, str], headers: dict[str, str] | None = None) -> Response:
    """ASCII only: what a client sent may hold half a surrogate pair, which no encoding takes."""
    short = {name: text if len(text) <= MOST_SAID else f"{text[:MOST_SAID]}..." for name, text in said.items()}
    return Response(json.dumps(short), status, headers, "application/json")


def of(error: PerrunError) -> Response:
    return response(STATUS.get(error.code, 422), error.to_dict())


def refused(status: int, what: str, *, expected: str = "", hint: str = "", headers: Any = None) -> Response:
    """A refusal that is the server's own."""
    said = {"error": OF_STATUS.get(status, "error"), "what": what, "expected": expected, "hint": hint}
    return response(status, said, headers)


class _Complaints:
    """Complaints of pydantic without the word for the part of the request that they are about."""

    def __init__(self, found: Sequence[Any]) -> None:
        self.found = [{**one, "loc": [part for part in one["loc"] if part not in ("body", "query")]} for one in found]

    def errors(self) -> list[dict[str, Any]]:
        return self.found


def from_validation(found: Sequence[Any]) -> InvalidInput:
    """The first complaint as one line."""
    first = found[0]
    if first["type"] == "missing" and list(first["loc"]) == ["body"]:
        return InvalidInput("there is no body", expected="a JSON object")
    if first["type"] == "json_invalid":
        return InvalidInput("the body is no JSON", expected="a JSON object")
    said = complaints.from_validation(_Complaints(found))
    if said.hint.startswith("-"):  # a flag of the command line
        said.hint = ""
    return said
