"""Days as people and programs write them."""

from datetime import date

from perrun.errors import InvalidInput


def dated(text: str | None, wrong: str, expected: str = "YYYY-MM-DD") -> date | None:
    """The day that a text means, None for no text. Raises InvalidInput, which says `wrong`, for what is no day."""
    if text is None:
        return None
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise InvalidInput(wrong, expected=expected) from None
