"""How old prices are, said in words: after a week a price is old."""

from collections.abc import Iterable
from datetime import date

OLD_DAYS = 7  # providers re-check their prices weekly


def age_days(observed_at: date, today: date | None = None) -> int:
    return ((today or date.today()) - observed_at).days


def said(days: Iterable[date], today: date | None = None) -> str:
    """One line on the age of all prices of an answer; '' when there are none."""
    ages = sorted(age_days(day, today) for day in days)
    if not ages:
        return ""
    old = sum(age > OLD_DAYS for age in ages)
    span = f"{ages[0]} days old" if ages[0] == ages[-1] else f"{ages[0]} to {ages[-1]} days old"
    if not old:
        return f"prices {span}"
    share = "all" if old == len(ages) else f"{old} of {len(ages)}"
    return f"prices {span}, {share} over a week: perrun prices refresh"
