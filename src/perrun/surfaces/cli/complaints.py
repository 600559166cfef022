"""One line for every mistake of a user, on stderr; with --json the same as an object on stdout. Never a traceback."""

import json
import sys
from typing import Any

from perrun.errors import InvalidInput, PerrunError


def tell(error: Exception, as_json: bool) -> int:
    """Prints what went wrong and returns the exit code; what is no user's mistake is raised again."""
    known = _known(error)
    if known is None:
        code = getattr(error, "exit_code", None)
        if code is None:
            raise error
        return _usage(error, int(code), as_json)
    if as_json:
        print(json.dumps(known.to_dict(), indent=2))
    print(f"error: {known}", file=sys.stderr)
    return known.exit_code


def _known(error: Exception) -> PerrunError | None:
    if isinstance(error, PerrunError):
        return error
    if type(error).__name__ == "ValidationError":
        return from_validation(error)
    return None


def _usage(error: Exception, code: int, as_json: bool) -> int:
    """Complaints of the argument parser (unknown flag, missing argument), and its plain exits."""
    message = error.format_message() if hasattr(error, "format_message") else ""  # type: ignore[attr-defined]
    if message:
        if as_json:
            print(json.dumps({"error": "usage", "what": message, "expected": "", "hint": "--help"}, indent=2))
        context = getattr(error, "ctx", None)
        path = f" Hint: {context.command_path} --help" if context is not None else ""
        print(f"error: {message}{path}", file=sys.stderr)
    return code


def from_validation(error: Any) -> InvalidInput:
    """The first complaint of pydantic as one line: the field, what was given, what is allowed."""
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"]) or "input"
    given = first.get("input")
    text = str(first["msg"]).removeprefix("Value error, ")
    shown = "" if isinstance(given, dict) else f" is {given!r}"
    return InvalidInput(f"{field}{shown}", expected=text[:1].lower() + text[1:])
