"""What each stack's own parser knows: fields/NAME.json, made from the real packages by scripts/stacks/fields."""

import json
from difflib import get_close_matches
from functools import cache
from importlib import resources
from typing import Any

from perrun.recipes.keys import parsed


@cache
def stored(target: str) -> dict[str, Any] | None:
    """{package, version, fields: {section: {name: {type, default, ...}}}}; None for a target without a parser."""
    file = resources.files(__package__ or "").joinpath(f"fields/{target}.json")
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else None


def known(target: str, section: str | None = None) -> frozenset[str]:
    """Names of one section, or of all. Empty where nothing is stored."""
    found = stored(target)
    if found is None:
        return frozenset()
    sections = found["fields"]
    chosen = [sections[section]] if section in sections else sections.values()
    return frozenset(name for part in chosen for name in part)


SECTIONS = {"rm": "reward"}


def strange(target: str, objective: str | None, text: str) -> list[str]:
    """Top-level keys of a file that its stack does not know, each with the nearest that it does."""
    if stored(target) is None:
        return []
    names = known(target, SECTIONS.get(objective or "", objective) if target == "trl" else "top")
    return [_said(key, names) for key in parsed(text, target) if key not in names]


def nested(target: str, section: str, keys: list[str]) -> list[str]:
    """The same for the keys of a mapping inside a file."""
    names = known(target, section)
    return [_said(key, names) for key in keys if key not in names]


def _said(key: str, names: frozenset[str]) -> str:
    near = get_close_matches(key, names, n=1)
    return f"{key} (did you mean {near[0]}?)" if near else key
