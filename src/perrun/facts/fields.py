"""A config.json whose values are checked as they are read: every complaint names the key."""

from collections.abc import Mapping
from typing import Any, cast

from perrun.errors import InvalidInput

# Above these a number is a typing mistake, not a model: the largest published are 126 layers, width 18432
# (hidden) and 53248 (intermediate), vocabulary 262400, 512 experts, 10485760 positions.
_LIMITS = {"layers": 2_000, "heads": 8_192, "experts": 65_536, "vocab": 10_000_000, "position": 1_000_000_000}
_WIDTH_LIMIT = 4_000_000


def _limit(key: str) -> int:
    for word, limit in _LIMITS.items():
        if word in key and "dim" not in key:
            return limit
    return _WIDTH_LIMIT


class Fields:
    """Typed access to the keys of one config section.

    Every getter takes the key's names, oldest spelling last (`hidden_size`, `n_embd`), and reads the first that
    is there and not null. All raise InvalidInput naming the key when the value is missing or not allowed.
    """

    def __init__(self, config: Mapping[str, Any], where: str, prefix: str = "") -> None:
        self.config = config
        self.where = where
        self.prefix = prefix

    def _find(self, keys: tuple[str, ...]) -> tuple[str, Any]:
        for key in keys:
            if self.config.get(key) is not None:
                return self.prefix + key, self.config[key]
        return self.prefix + keys[0], None

    def error(self, key: str, value: object, expected: str) -> InvalidInput:
        """The complaint about one key, ready to raise."""
        return InvalidInput(
            f"{self.where}: {self.prefix}{key} is {value!r}",
            expected=expected,
            hint="check the config.json, or pass the hub id of the model instead",
        )

    def with_defaults(self, **defaults: Any) -> "Fields":
        """The same, with values for keys that are missing (a null stays null)."""
        return Fields({**defaults, **self.config}, self.where, self.prefix)

    def overlaid(self, **values: Any) -> "Fields":
        """The same, with values that win over the config's."""
        return Fields({**self.config, **values}, self.where, self.prefix)

    def has(self, *keys: str) -> bool:
        return self._find(keys)[1] is not None

    def whole(self, *keys: str, default: int | None = None, minimum: int = 1) -> int:
        """A whole number of at least `minimum`; `default` when the key is missing, an error when there is none."""
        key, value = self._find(keys)
        if value is None:
            if default is not None:
                return default
            raise InvalidInput(
                f"{self.where}: {key} is missing",
                expected=f"a whole number under {' or '.join(keys)}",
                hint="is this the config.json of a causal language model?",
            )
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        limit = _limit(key)
        if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= limit:
            raise InvalidInput(
                f"{self.where}: {key} is {value!r}",
                expected=f"a whole number from {minimum} to {limit}",
                hint="check the config.json, or pass the hub id of the model instead",
            )
        return value

    def optional(self, *keys: str, minimum: int = 1) -> int | None:
        """A whole number, or None when the key is missing or null."""
        return self.whole(*keys, minimum=minimum) if self.has(*keys) else None

    def flag(self, *keys: str, default: bool = False) -> bool:
        key, value = self._find(keys)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise InvalidInput(f"{self.where}: {key} is {value!r}", expected="true or false")
        return value

    def number(self, *keys: str, default: float) -> float:
        key, value = self._find(keys)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
            raise InvalidInput(f"{self.where}: {key} is {value!r}", expected="a number of at least 0")
        return float(value)

    def text(self, *keys: str, default: str = "") -> str:
        key, value = self._find(keys)
        if value is None:
            return default
        if not isinstance(value, str):
            raise InvalidInput(f"{self.where}: {key} is {value!r}", expected="a text")
        return value

    def items(self, *keys: str) -> list[Any] | None:
        """A list, or None when the key is missing or null."""
        key, value = self._find(keys)
        if value is None:
            return None
        if not isinstance(value, list):
            raise InvalidInput(f"{self.where}: {key} is {value!r}", expected="a list")
        return cast("list[Any]", value)

    def per_layer(self, key: str, n_layers: int) -> list[Any] | None:
        """A list with one entry per layer, or None when the key is missing."""
        entries = self.items(key)
        if entries is not None and len(entries) != n_layers:
            raise InvalidInput(
                f"{self.where}: {self.prefix}{key} has {len(entries)} entries",
                expected=f"one per layer, {n_layers}",
            )
        return entries

    def indices(self, key: str) -> frozenset[int] | None:
        """Layers named by number, or None when the key is missing or null."""
        entries = self.items(key)
        if entries is None:
            return None
        if not all(isinstance(entry, int) for entry in entries):
            raise self.error(key, entries, "numbers of layers")
        return frozenset(entries)

    def wholes(self, key: str, n_layers: int) -> list[int]:
        """A whole number per layer, given as a list or as one number for all."""
        entries = self.per_layer(key, n_layers) if isinstance(self.config.get(key), list) else None
        if entries is None:
            return [self.whole(key)] * n_layers
        return [Fields({key: entry}, self.where, self.prefix).whole(key) for entry in entries]

    def section(self, key: str) -> "Fields | None":
        """A nested object (text_config, vision_config, ...), or None when it is missing."""
        found, value = self._find((key,))
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise InvalidInput(f"{self.where}: {found} is {value!r}", expected="an object")
        return Fields(cast("Mapping[str, Any]", value), self.where, f"{found}.")
