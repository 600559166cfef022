"""A configuration being read: what was taken of it, what is left, and complaints that name the key."""

import json
from typing import Any, cast

import yaml

from perrun.errors import InvalidInput

TRUE, FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")
NOTHING = ("", "none", "null")


class Keys:
    """The keys of one mapping. Whatever is not taken by the end is listed by `rest`."""

    def __init__(self, data: dict[str, Any], where: str) -> None:
        self.data = data
        self.where = where
        self._taken: set[str] = set()

    def __contains__(self, key: str) -> bool:
        return self.data.get(key) is not None

    def name(self, key: str) -> str:
        """The key as a complaint writes it."""
        return f"{self.where}: {key}"

    def take(self, *keys: str) -> Any:
        """The value of the first of some keys that stands there; None where none does. All of them count as read."""
        self._taken.update(keys)
        return next((self.data[key] for key in keys if self.data.get(key) is not None), None)

    def flag(self, *keys: str) -> bool | None:
        """Yes or no, as YAML or a command line writes it. Raises InvalidInput for anything else."""
        value = self.take(*keys)
        if value is None or isinstance(value, bool):
            return value
        text = str(value).strip().lower()
        if text in NOTHING:
            return None
        if text in TRUE + FALSE:
            return text in TRUE
        raise self.wrong(value, "true or false", *keys)

    def number(self, *keys: str) -> float | None:
        """A number above 0. Raises InvalidInput for anything else, 'auto' too: nobody but the stack knows it."""
        value = self.take(*keys)
        if value is None or str(value).strip().lower() in NOTHING:
            return None
        try:
            found = float(value)
        except (TypeError, ValueError):
            raise self.wrong(value, "a number", *keys) from None
        if isinstance(value, bool) or not 0 < found < float("inf"):
            raise self.wrong(value, "a number above 0", *keys)
        return found

    def whole(self, *keys: str) -> int | None:
        """A whole number above 0. Raises InvalidInput for anything else."""
        found = self.number(*keys)
        if found is not None and found != int(found):
            raise self.wrong(found, "a whole number", *keys)
        return None if found is None else int(found)

    def text(self, *keys: str) -> str | None:
        """A word. Raises InvalidInput for a list or a mapping."""
        value = self.take(*keys)
        if isinstance(value, (dict, list)):
            raise self.wrong(value, "one word", *keys)
        return None if value is None or str(value).strip().lower() in NOTHING else str(value)

    def within(self, key: str) -> "Keys":
        """The mapping that stands at a key; empty where there is none. Raises InvalidInput when it is no mapping."""
        value = self.take(key)
        if value is None:
            return Keys({}, self.name(key))
        if isinstance(value, str):
            value = parsed(value, self.name(key))
        if not isinstance(value, dict):
            raise self.wrong(value, "a mapping", key)
        return Keys(cast(dict[str, Any], value), self.name(key))

    def mappings(self, key: str) -> list[dict[str, Any]]:
        """The mappings of a list; what else it holds is left out."""
        value = self.take(key)
        return [one for one in cast(list[Any], value) if isinstance(one, dict)] if isinstance(value, list) else []

    def wrong(self, value: Any, expected: str, *keys: str) -> InvalidInput:
        given = next((key for key in keys if self.data.get(key) is not None), keys[0])
        return InvalidInput(f"{self.name(given)} is {value!r}", expected=expected)

    def rest(self) -> list[str]:
        """Keys that stand there and were not read."""
        return [key for key in self.data if key not in self._taken]


def parsed(text: str, where: str) -> dict[str, Any]:
    """A YAML or JSON mapping. Raises InvalidInput with the line for a text that is none."""
    try:
        found = json.loads(text) if text.lstrip().startswith("{") else yaml.safe_load(text)
    except (yaml.YAMLError, ValueError) as why:
        mark = getattr(why, "problem_mark", None)
        line = f" line {mark.line + 1}" if mark is not None else f" line {getattr(why, 'lineno', 1)}"
        problem = getattr(why, "problem", None) or getattr(why, "msg", None) or str(why).splitlines()[0]
        raise InvalidInput(f"{where}{line}: {problem}", expected="a YAML or JSON configuration") from None
    if not isinstance(found, dict):
        raise InvalidInput(f"{where} holds no settings", expected="a mapping of keys to values")
    return {str(key): value for key, value in found.items()}  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
