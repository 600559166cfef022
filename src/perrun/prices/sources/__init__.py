"""Where prices come from: one file a source, found by folder; each says how it is fetched and how it is parsed."""

from importlib import import_module
from pkgutil import iter_modules

from perrun.errors import UnknownName
from perrun.prices.sources.base import Source

_NO_SOURCES = ("base", "http", "cards")


def every() -> dict[str, Source]:
    """Sources by name: the `SOURCE` of each module of this folder, or what its `sources()` gives."""
    found: list[Source] = []
    for module in sorted(info.name for info in iter_modules(__path__)):
        if module not in _NO_SOURCES:
            loaded = import_module(f"{__name__}.{module}")
            found += loaded.sources() if hasattr(loaded, "sources") else [loaded.SOURCE]
    return {source.name: source for source in found}


def chosen(names: list[str] | None) -> list[Source]:
    """The sources of these names, all of them for none. Raises UnknownName."""
    known = every()
    for name in names or ():
        if name not in known:
            raise UnknownName(f"no price source {name!r}", expected=", ".join(known))
    return [known[name] for name in names] if names else list(known.values())


def markdown() -> str:
    """The sources as the table of docs/prices.md; a test compares."""
    lines = ["| Source | Endpoint | Key | Unit | Terms | Billing | As verified |", "|---" * 7 + "|"]
    for source in every().values():
        key = "none"
        if source.keys:
            key = " or ".join(f"`{name}`" for name in source.keys) + ("" if source.needs_key else " (not needed)")
        cells = (source.title, source.endpoint, key, source.unit, source.terms, source.billing, source.verified)
        lines.append(f"| `{source.name}` | " + " | ".join((f"{cells[0]}, {cells[1]}", *cells[2:])) + " |")
    return "\n".join(lines) + "\n"
