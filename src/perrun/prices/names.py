"""Cards as price lists write them: the name that a quote bears, and the card that a plan takes for it."""

import re
from functools import cache
from itertools import takewhile

from perrun.errors import AmbiguousName
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
def card_of(name: str) -> tuple[str, str]:
    """(canonical id, note) of a card as a price list names it.

    Where the list does not say the form factor, the slowest of the candidates stands in, so that a plan never
    promises the faster one. Raises UnknownName.
    """
    known = tables.unsaid().get(name)
    if known:
        return known, f"sold as {name}, form factor not said"
    try:
        return gpus.get(name).id, ""
    except AmbiguousName:
        return slowest_of(name), f"sold as {name}, form factor not said"


def slowest_of(name: str) -> str:
    """Of the cards that a name may mean the slowest, by arithmetic and then by memory."""
    return min(gpus.candidates(name), key=_pace).id


def _pace(gpu: GPU) -> tuple[float, float]:
    return (gpu.bf16_dense_tflops or gpu.fp16_dense_tflops or 0.0, gpu.bandwidth_gb_s or 0.0)
