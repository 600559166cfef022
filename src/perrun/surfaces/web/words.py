"""The page in three languages: one table of messages, and numbers as each language writes them."""

import csv
from datetime import date
from functools import cache
from importlib import resources

LANGUAGES = {"en": "English", "de": "Deutsch", "fr": "Français"}


@cache
def catalogue(language: str) -> dict[str, str]:
    """Messages by key."""
    text = (resources.files("perrun.surfaces.web") / "words.csv").read_text(encoding="utf-8")
    return {row["key"]: row[language] for row in csv.DictReader(text.splitlines())}


def chosen(asked: str, accepted: str) -> str:
    """The language that was asked for, else the first of the browser's that there is, else English."""
    if asked in LANGUAGES:
        return asked
    from babel import negotiate_locale

    wanted = [part.partition(";")[0].strip()[:20] for part in accepted[:200].split(",")]
    return negotiate_locale(wanted, list(LANGUAGES), sep="-") or "en"


def number(value: float | None, digits: int = 2, language: str = "en") -> str:
    """A figure with so many decimals."""
    from babel.numbers import format_decimal

    if value is None:
        return ""
    pattern = "#,##0." + "0" * digits if digits else "#,##0"
    return format_decimal(value, format=pattern, locale=language)


def percent(value: float, language: str = "en") -> str:
    from babel.numbers import format_percent

    return format_percent(value, locale=language)


def day(text: str | None, language: str = "en") -> str:
    """A day as ISO writes it, in the language's way."""
    from babel.dates import format_date

    return format_date(date.fromisoformat(text), format="medium", locale=language) if text else ""
