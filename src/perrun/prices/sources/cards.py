"""Cards as price lists write them, brought to the name that a quote bears."""

import re
from functools import cache
from itertools import takewhile

from perrun.facts import gpus
from perrun.prices import tables
from perrun.terms import GPU

CLOSE = 0.12  # drivers report up to so much less memory than a card is sold with (22.4 GiB of an A10G's 24)


@cache
def named(name: str, memory_gb: float | None = None) -> str:
    """The canonical id where name and memory tell the card, else the name without form factor, as A100-80GB.

    A name that the facts do not hold comes back as it is, so that it can be shown and counted.
    """
    spoken = re.sub(r"[_]", " ", name).strip()
    found = gpus.candidates(spoken)
    if memory_gb and len(found) > 1:
        gap = min(abs(card.memory_gb - memory_gb) for card in found)
        near = [card for card in found if abs(card.memory_gb - memory_gb) == gap]
        found = tuple(near) if gap <= CLOSE * near[0].memory_gb else found
    if len(found) == 1:
        return found[0].id
    return _without_form(found) or name


def _without_form(found: tuple[GPU, ...]) -> str:
    """'H100-80GB' of H100-SXM-80GB and H100-PCIe-80GB, where that name means these cards and no others."""
    if not found or len({card.memory_gb for card in found}) > 1:
        return ""
    parts = zip(*(card.id.split("-") for card in found), strict=False)
    stem = [words[0] for words in takewhile(lambda words: len(set(words)) == 1, parts)]
    name = "-".join([*stem, f"{found[0].memory_gb:g}GB"])
    return name if set(gpus.candidates(name)) == set(found) else ""


@cache
def machines() -> dict[tuple[str, str], tuple[str, int]]:
    """(provider, instance) -> (card, count) of machines whose names say no card: rows of the shipped snapshot."""
    known = tables.shipped("snapshot.csv")
    return {(row["provider"], row["instance"]): (row["gpu"], int(row["n_gpus"])) for row in known}


def of_machine(
    provider: str, instance: str, count: int | None, name: str, memory_gb: float | None, form: str = ""
) -> str:
    """The card of a machine: by the machine's own name where that is known, else by the card's name as listed.

    Lists that merge form factors (A100 for SXM and PCIe) are undone here, by what the machine's name or `form` gives
    away. Raises nothing: an unknown name stays.
    """
    known = machines().get((provider, instance))
    if known is not None and count in (None, known[1]):
        return known[0]
    said = _form(f"{form} {instance}")
    if said:
        with_form = named(f"{name} {said}", memory_gb)
        if gpus.candidates(with_form):
            return with_form
    return named(name, memory_gb)


_FORMS = (("nvl", "NVL"), ("pcie", "PCIe"), ("sxm", "SXM"), ("hbm3", "SXM"), ("hgx", "SXM"))


def _form(text: str) -> str:
    """The form factor that a text gives away, '' if none."""
    return next((form for sign, form in _FORMS if sign in text.lower()), "")
