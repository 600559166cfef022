"""Command lines: what a recipe's run.sh says, and what people have in theirs."""

import shlex
from dataclasses import dataclass, field
from typing import Any

from perrun.errors import InvalidInput

SCRIPT = "run.sh"
# flags of the stacks that take several words
SEVERAL = frozenset(("lora_target_modules", "lora_modules_to_save", "reward_funcs", "loss_type", "report_to"))
OPERATORS = (";", "&&", "||", "|", "&")


@dataclass(slots=True)
class Call:
    """One command of a shell script: the variables set before it, its words, and its flags as a mapping.

    A flag that stands twice keeps its last value; one without a value is True.
    """

    variables: dict[str, str] = field(default_factory=dict[str, str])
    words: list[str] = field(default_factory=list[str])
    flags: dict[str, Any] = field(default_factory=dict[str, Any])


def script(install: str, command: str) -> str:
    """run.sh: the exact command, and what it needs in a comment."""
    return f"#!/usr/bin/env bash\n# needs: {install}\nset -euo pipefail\n{command}\n"


def calls(text: str) -> list[Call]:
    """The commands of a script or of one line. Raises InvalidInput for a quote that is never closed."""
    try:
        lexer = shlex.shlex(text.replace("\\\n", " "), posix=True, punctuation_chars=";&|")
        lexer.whitespace_split = True
        lexer.whitespace = " \t\r"  # the end of a line ends a command
        words = list(lexer)
    except ValueError as why:
        raise InvalidInput(f"the command line cannot be read: {why}", expected="a shell command") from None
    found: list[Call] = []
    current: list[str] = []
    parts = [part for word in words for part in _at_line_ends(word)]
    for word in [*parts, "\n"]:
        if word in OPERATORS or word == "\n":
            if current:
                found.append(_call(current))
            current = []
        elif word:
            current.append(word)
    return found


def _at_line_ends(word: str) -> list[str]:
    """A word as the lexer gives it may hold the ends of lines that stood beside it."""
    parts: list[str] = []
    for index, part in enumerate(word.split("\n")):
        parts += ["\n"] * (index > 0) + [part]
    return parts


def _call(words: list[str]) -> Call:
    call = Call()
    rest = list(words)
    if rest and rest[0] == "export":
        rest = rest[1:]
    while rest and "=" in rest[0] and rest[0].split("=")[0].isidentifier():
        name, _, value = rest.pop(0).partition("=")
        call.variables[name] = value
    index = 0
    while index < len(rest):
        word = rest[index]
        index += 1
        if not word.startswith("--") or word == "--":
            if word != "--":
                call.words.append(word)
            continue
        name, equals, value = word[2:].partition("=")
        name = name.replace("-", "_")
        values = [value] if equals else []
        most = len(rest) if name in SEVERAL else 1
        while not equals and len(values) < most and index < len(rest) and not rest[index].startswith("-"):
            values.append(rest[index])
            index += 1
        call.flags[name] = True if not values else values if name in SEVERAL else values[0]
    return call


def file_of(call: Call, *endings: str) -> str | None:
    """The first word of a call that is a file of one of the kinds."""
    return next((word for word in call.words if word.endswith(endings)), None)
