"""The cells of one measured row, each read as what its column means."""

from typing import Any

from perrun.errors import InvalidInput
from perrun.runs import spellings
from perrun.terms import Run


class Row:
    """Cells of one row, and the profile that fills the empty ones."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.notes = run.columns.get("notes", "")
        self.assumed: dict[str, Any] = {}

    def cell(self, name: str) -> str:
        return self.run.columns.get(name, "")

    def fill(self, name: str, value: Any) -> Any:
        self.assumed[name] = value
        return value

    def choice(self, name: str, default: str) -> str:
        value = spellings.choice(name, self.cell(name))
        return self.fill(name, default) if value is None else value

    def flag(self, name: str, default: bool) -> bool:
        value = spellings.flag(name, self.cell(name))
        return self.fill(name, default) if value is None else value

    def whole(self, name: str) -> int | None:
        value = spellings.number(name, self.cell(name), whole=True)
        return None if value is None else int(value)

    def number(self, name: str) -> float | None:
        return spellings.number(name, self.cell(name))

    def stated(self, name: str) -> str:
        """A cell that no profile can fill. Raises InvalidInput when it is empty."""
        cell = self.cell(name)
        if cell.strip().lower() in spellings.UNKNOWN:
            raise InvalidInput(f"the {name} is not stated")
        return cell
