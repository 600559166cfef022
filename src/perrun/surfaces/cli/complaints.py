"""One line for every mistake of a user, on stderr; with --json the same as an object on stdout. Never a traceback."""

import json
import math
import sys
from difflib import get_close_matches
from typing import Any

from perrun.errors import InvalidInput, PerrunError


def tell(error: Exception, as_json: bool, command: str = "") -> int:
    """Prints what went wrong and returns the exit code; what is no user's mistake is raised again.

    Every complaint ends in a hint: its own, or where the command's flags are explained.
    """
    known = _known(error)
    if known is None:
        code = getattr(error, "exit_code", None)
        if code is None:
            raise error
        return int(code)  # a plain exit
    known.hint = known.hint or f"perrun {command}".rstrip() + " --help"
    if as_json:
        print(json.dumps(known.to_dict(), indent=2))
    print(f"error: {known}", file=sys.stderr)
    return known.exit_code


def _known(error: Exception) -> PerrunError | None:
    if isinstance(error, PerrunError):
        return error
    if type(error).__name__ == "ValidationError":
        return from_validation(error)
    if hasattr(error, "format_message"):  # of the argument parser: an unknown flag, a missing argument
        message = str(error.format_message())  # type: ignore[attr-defined]
        return InvalidInput(message) if message else None
    return None


def from_validation(error: Any) -> InvalidInput:
    """The first complaint of pydantic as one line: the field, what was given, what is allowed, the flag's help."""
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"])
    text = str(first["msg"]).removeprefix("Value error, ")
    if not field:  # a rule over several fields says them itself
        return InvalidInput(text)
    if first["type"] == "missing":
        return InvalidInput(f"{field} is missing", expected="a value", hint=_hint(field, None, ""))
    given = first.get("input")
    allowed = _allowed(first["type"], first.get("ctx", {}), given) or text[:1].lower() + text[1:]
    return InvalidInput(f"{field} is {given!r}", expected=allowed, hint=_hint(field, given, allowed))


def _allowed(kind: str, limits: dict[str, Any], given: Any) -> str:
    """What pydantic would allow, in words; '' for what it says well enough itself."""
    if isinstance(given, float) and not math.isfinite(given):
        return "a finite number"
    if kind == "literal_error":
        return str(limits["expected"]).replace("'", "").replace(" or ", ", ")
    words = {"greater_than": "above", "greater_than_equal": "at least", "less_than_equal": "at most"}
    bounds = {"greater_than": "gt", "greater_than_equal": "ge", "less_than_equal": "le"}
    if kind not in words:
        return ""
    bound = limits[bounds[kind]]
    return f"a number {words[kind]} {int(bound) if bound == int(bound) else bound:,}"


def _hint(field: str, given: Any, allowed: str) -> str:
    """The nearest allowed word, or what the flag of the field means."""
    near = get_close_matches(str(given), allowed.split(", "), n=1) if isinstance(given, str) else []
    if near:
        return f"did you mean {near[0]}?"
    from perrun.surfaces.cli.options import JOB, STRATEGY

    return next((f"{flag.spelling[0]}: {flag.help}" for flag in (*JOB, *STRATEGY) if flag.field == field), "")
