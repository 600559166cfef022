"""The publications that the tables of facts refer to."""

from functools import cache

from perrun.errors import UnknownName
from perrun.facts import tables
from perrun.terms import Source


@cache
def all_sources() -> tuple[Source, ...]:
    """Every publication of sources.csv."""
    return tuple(
        Source.model_construct(None, id=row["id"], title=row["title"], url=row["url"], read=row["read"])
        for row in tables.read("sources")
    )


def get(id: str) -> Source:
    """One publication. Raises UnknownName."""
    for source in all_sources():
        if source.id == id:
            return source
    raise UnknownName(f"no publication {id!r} in sources.csv")


def cited(cell: str) -> tuple[Source, ...]:
    """The publications that a `source` cell refers to, by the spellings that cells use for them."""
    spelt = zip(all_sources(), tables.read("sources"), strict=True)
    return tuple(source for source, row in spelt if any(word in cell for word in row["spelt"].split(";")))
