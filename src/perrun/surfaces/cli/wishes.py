"""What the flags of a plan say, as fields of `perrun.planner.Wish`."""

from datetime import date
from typing import Any

from perrun.errors import InvalidInput
from perrun.surfaces.days import dated

SHOWN = 20
ABOVE_ZERO = {"budget_usd": "budget", "deadline_h": "deadline", "mtbi_hours": "mtbi", "per_day": "per-day"}


def wish(given: dict[str, Any], limit: int | None = None) -> dict[str, Any]:
    """Fields of a Wish. limit: plans shown; None for the usual number, 0 for all."""
    from perrun.facts import gpus
    from perrun.planner import SORTS

    found = dict(given)
    for name in ("providers", "regions", "terms"):
        if name in found:
            found[name] = tuple(found[name])
    if "gpus" in found:
        found["gpus"] = tuple(card for name in found["gpus"] for card in gpus.meant(name))
    for name, said in ABOVE_ZERO.items():
        if name in found and not found[name] > 0:
            raise InvalidInput(f"{said} is {found[name]:g}", expected="a number above 0")
    if found.get("sort", "usd") not in SORTS:
        raise InvalidInput(f"sort is {found['sort']!r}", expected=", ".join(SORTS))
    found["limit"] = SHOWN if limit is None else (limit or None)
    return found


def day(text: str | None) -> date | None:
    """The day of --as-of."""
    return dated(text, f"as-of is {text!r}", "a day, YYYY-MM-DD")
