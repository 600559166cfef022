"""The card of a machine, by the machine's own name where a price list merges form factors."""

from functools import cache

from perrun.facts import gpus
from perrun.prices import tables
from perrun.prices.names import named


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
